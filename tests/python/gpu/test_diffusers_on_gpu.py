"""Group offloading of diffusers on a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("diffusers", reason="diffusers is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from diffusers.hooks import apply_group_offloading  # noqa: E402
from narrowcast.integrations.diffusers import encode_groups  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, LAYERS = 2048, 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)])
        self.to(torch.bfloat16).eval()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize(
    "stream",
    [{}, {"use_stream": True}, {"use_stream": True, "record_stream": True}],
    ids=["none", "stream", "recorded"],
)
@pytest.mark.parametrize("kind", ["leaf_level", "block_level"])
@pytest.mark.parametrize("rows", [1, 4096])
def test_outputs_have_the_same_bits(kind, stream, rows):
    x = torch.randn(rows, WIDTH, dtype=torch.bfloat16, device="cuda")
    model = Model()
    with torch.inference_mode():
        expected = model.cuda()(x)
        model.cpu()
        apply_group_offloading(model, torch.device("cuda"), offload_type=kind, num_blocks_per_group=1, **stream)
        groups = encode_groups(model)
        # Without waiting for the GPU between them.
        outs = [model(x) for _ in range(6)]
    assert all(torch.equal(out, expected) for out in outs)
    groups.check()


def test_few_groups_are_on_the_gpu_at_a_time():
    model = Model()
    apply_group_offloading(model, torch.device("cuda"), offload_type="leaf_level", use_stream=True)
    encode_groups(model)
    x = torch.randn(16384, WIDTH, dtype=torch.bfloat16, device="cuda")
    layer_bytes = 2 * WIDTH * (WIDTH + 1)
    with torch.inference_mode():
        model(x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model(x)
    torch.cuda.synchronize()
    # The input of a block, the outputs of its layer and of GELU, and the weights of the layers that run, come next, and
    # were last.
    assert torch.cuda.max_memory_allocated() - before < 3 * x.nbytes + 3.5 * layer_bytes
