"""Group offloading of diffusers, with weights that are encoded in host memory. Needs a GPU."""

import diffusers
import torch
from narrowcast.integrations.diffusers import encode_groups

torch.manual_seed(0)
model = diffusers.UNet2DModel(sample_size=32, block_out_channels=(64, 128, 256, 256)).bfloat16().eval()
x = torch.randn(1, 3, 32, 32, dtype=torch.bfloat16, device="cuda")

with torch.inference_mode():
    expected = model.to("cuda")(x, 10).sample
    model.to("cpu")
    model.enable_group_offload(torch.device("cuda"), offload_type="leaf_level", use_stream=True)
    groups = encode_groups(model)
    for _ in range(3):
        assert torch.equal(model(x, 10).sample, expected)

groups.check()
print(f"{groups.raw_bytes >> 20} MiB of weights take {groups.ratio:.2f} of that in host memory")
