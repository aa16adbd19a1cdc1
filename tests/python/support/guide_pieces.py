"""The pieces of programs that the guide shows: those of a section run one after another, in a prepared namespace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

GUIDE = Path(__file__).parents[3] / "docs" / "guide"


class Setting(NamedTuple):
    """How the pieces of a section run: in one namespace, with what precedes and follows them, and DEVICE.

    Without a GPU, "cuda" in them becomes "cpu".
    """

    needs: tuple[str, ...] = ()  #: packages
    before: str = ""
    after: str = ""
    on_gpu: bool = False  #: only runs on a GPU
    ranks: int = 0  #: runs on so many ranks, each with a communicator `comm`; 0: once, without one


def pieces(page: Path) -> dict[str, list[str]]:
    """The blocks of Python by section, without programs, which begin with a file name or with what they do."""
    found: dict[str, list[str]] = {}
    heading = ""
    for title, block in re.findall(r"^#+ ([^\n]+)$|^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if title:
            heading = title
        elif not block.startswith(("# ", '"""')):
            found.setdefault(heading, []).append(block)
    return found


TABLE = """
import torch
weight, model = torch.randn(500, 64), torch.nn.Linear(64, 1)
indices = torch.tensor([[1, 2], [3, 4]])
"""
PYG = """
import importlib.util
import narrowcast.store, torch
from torch_geometric.loader import NeighborLoader
from torch_geometric.testing import MyGraphStore
narrowcast.store.build(torch.randn(30, 8), path="author.ncs", host=None)
x, graph_store = torch.randn(50, 16), MyGraphStore()
graph_store.put_edge_index(torch.tensor([[0, 1], [1, 2]]), ("author", "writes", "paper"), "coo", size=(30, 50))
if importlib.util.find_spec("pyg_lib") is None:
    def NeighborLoader(data, **options): return data  # which cannot sample
"""
GRAPHBOLT = """
import narrowcast.store, torch
from dgl import graphbolt
values = torch.randn(500, 64)
narrowcast.store.build(values, path="features.ncs", host=None)
"""
LAYERS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Module()
        self.model.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.lm_head = nn.Linear(64, 100)
        self.bfloat16().eval()
    def forward(self, x):
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(x)
model, tokens = Model(), torch.ones(2, 64, dtype=torch.bfloat16, device=DEVICE)
with torch.inference_mode():
    expected = Model().to(DEVICE)(tokens)
"""
SAME = """
with torch.inference_mode():
    assert torch.equal(model(tokens), expected)
"""
ROWS = """
import numpy as np
from narrowcast import store
features = np.random.default_rng(0).standard_normal((5000, 128), np.float32)
"""
TENSORS = f"""{ROWS}
import torch
table = store.build(features)
block, three_rows = torch.empty(4096, 128, device=DEVICE), torch.empty(3, 128, device=DEVICE)
most_frequent_first = np.arange(1000)
"""
PLAN = """
import numpy as np
from narrowcast.plan import Program
def plan(ranks):
    p = Program("all_reduce", ranks, name="sum")
    for r in p.ranks:
        r.output[0] = r.reduce(peer.input[0] for peer in p.ranks)
    return p
gradients, reduced, stream = np.full(1000, 0x3F80, np.uint16), np.empty(1000, np.uint16), None
"""
ALONE_ON_GPU = """
import narrowcast, torch
unique_id, rank, ranks = narrowcast.unique_id(), 0, 1
"""

SETTINGS = {
    ("try", "What a step is"): Setting(before="import narrowcast"),
    ("communicator", "Creating a communicator"): Setting((), ALONE_ON_GPU, "comm.close()", on_gpu=True),
    ("embeddings", "`Table`: `nn.Embedding`"): Setting(
        ("torch",), TABLE, "assert not torch.equal(table(indices), weight[indices])"
    ),
    ("embeddings", "PyTorch Geometric"): Setting(
        ("torch", "torch_geometric"), PYG, 'assert torch.equal(features["paper", "x", None], x)'
    ),
    ("embeddings", "GraphBolt"): Setting(
        ("torch", "dgl.graphbolt"),
        GRAPHBOLT,
        'assert torch.equal(features.read("node", None, "feat", torch.tensor([7])), values[[7]])',
    ),
    ("files", "Files"): Setting(
        ("safetensors",),
        """
import numpy as np
from safetensors.numpy import save_file
save_file({"a": np.ones((100, 64), np.float32)}, "model.safetensors")
""",
        'assert open("model.safetensors", "rb").read() == open("copy.safetensors", "rb").read()',
    ),
    ("files", "Single tensors"): Setting(after='assert (bias == 0).all() and (tensors["a.weight"] == 1).all()'),
    ("lossy", "Weights that are sent again and again"): Setting(
        ("torch",),
        after="""
sent = comm.broadcast(weights, root=0)
assert torch.equal(comm.all_gather(received).view(2, -1)[0], received)
assert 0 < (received - sent).norm() < 1e-3 * sent.norm()
""",
        ranks=2,
    ),
    ("offload", "Modules"): Setting(("torch",), LAYERS, SAME),
    ("offload", "Tensors by name"): Setting(
        ("torch",),
        f"{LAYERS}\nbuffer = torch.empty(100, 64, dtype=torch.bfloat16, device=DEVICE)",
        "assert torch.equal(buffer.cpu(), model.lm_head.weight)",
    ),
    ("offload", "accelerate"): Setting(
        ("torch", "accelerate"), f"{LAYERS}\nimport accelerate\nfrom narrowcast.torch import EncodedTensors", SAME
    ),
    ("offload", "diffusers"): Setting(
        ("torch", "diffusers", "accelerate"),
        """
import types, diffusers, torch
torch.manual_seed(0)
pipe = types.SimpleNamespace(transformer=diffusers.UNet2DModel(32, block_out_channels=(32, 32, 32, 32)).eval())
x = torch.ones(1, 3, 32, 32, device=DEVICE)
with torch.inference_mode():
    expected = pipe.transformer.to(DEVICE)(x, 10).sample
pipe.transformer.to("cpu")
""",
        """
with torch.inference_mode():
    assert torch.equal(pipe.transformer(x, 10).sample, expected)
""",
        on_gpu=True,
    ),
    ("plans", "Choosing between plans"): Setting(after="comm.all_reduce(np.ones(1000, np.float32))", ranks=2),
    ("plans", "Plans for a communicator's own calls"): Setting((), PLAN, ranks=2),
    ("plans", "Plans in the drop-in for NCCL"): Setting(after="set_selector(None)"),
    ("plans", "Running plans"): Setting((), PLAN, "assert (reduced == 0x4000).all()", ranks=2),
    ("store", "Build"): Setting((), ROWS, "assert store.verify('features.ncs').good"),
    ("store", "On a GPU"): Setting(
        ("torch",),
        TENSORS,
        """
values = torch.from_numpy(features)
assert torch.equal(torch.as_tensor(rows).cpu(), values[index.cpu()])
assert torch.equal(block.cpu(), values[:4096])
assert torch.equal(three_rows.cpu(), values[[17, 4, 17]])
""",
    ),
    ("store", "Cache"): Setting(("torch",), TENSORS, on_gpu=True),
    ("torch", "As a backend"): Setting(("torch",), after="dist.barrier(); dist.destroy_process_group()"),
    ("tuning", "Registered buffers"): Setting(
        ("torch",),
        f"""{ALONE_ON_GPU}
comm = narrowcast.Communicator(unique_id, rank, ranks, backend="cuda", device=rank)
mine, size = torch.ones(1000, dtype=torch.bfloat16, device="cuda"), 2000
""",
        "torch.cuda.synchronize(); assert torch.equal(pool[:size], mine.view(torch.uint8)); comm.close()",
        on_gpu=True,
    ),
}
