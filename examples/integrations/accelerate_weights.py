"""Encoded weights for accelerate, which offloads a model to host memory."""

import accelerate
import torch
from narrowcast.torch import EncodedTensors
from torch import nn

device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).bfloat16().to(device)
x = torch.ones(4, 512, dtype=torch.bfloat16, device=device)

with torch.inference_mode():
    expected = model(x)
    weights = EncodedTensors(model.state_dict(), device=device)
    accelerate.cpu_offload(model, device, state_dict=weights)
    assert torch.equal(model(x), expected)

print(f"{weights.raw_bytes} bytes of weights take {weights.ratio:.2f} of that in host memory")
