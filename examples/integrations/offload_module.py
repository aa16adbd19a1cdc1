"""A module whose weights are encoded in host memory: same outputs, less memory. Runs on a GPU if there is one."""

import torch
from narrowcast.torch import offload
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
layers = [nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True) for _ in range(6)]
model = nn.Sequential(nn.Embedding(1000, 256), *layers, nn.Linear(256, 1000)).bfloat16().eval().to(device)
tokens = torch.arange(64, device=device)[None]

with torch.inference_mode():
    expected = model(tokens)
    offloaded = offload(model, units=layers)
    for _ in range(3):
        assert torch.equal(model(tokens), expected)

offloaded.check()
print(f"{offloaded.raw_bytes >> 20} MiB of weights take {offloaded.ratio:.2f} of that in host memory")
