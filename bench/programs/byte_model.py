"""Trains a byte-level language model on the CPU with the gradients' codecs, for several seeds, and compares the losses.

    torchrun --nproc-per-node 2 byte_model.py --json byte_model.json

The text is that of this checkout: its documentation and its Python code. Every codec starts from the same weights and
sees the same batches as the others, for each seed. Ranks are processes of one machine, and DDP averages gradients with
narrowcast.torch.compress_hook; "bf16" is torch's own hook, which rounds them to bfloat16. A codec is "as bf16" if the
mean of its losses is within the range of those of bf16, and "worse" above it.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from llama import Llama, Shape
from narrowcast.torch import Compression, compress_hook
from ranks import Job, parser
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

SHAPE = Shape(vocabulary=256, width=96, layers=2, heads=4, kv_heads=2, head_dim=24, hidden=256)
SEQUENCES, LENGTH, HELD_OUT_BATCHES = 8, 96, 16
CODECS = (
    "bf16",
    "int8:group=32",
    "e4m3:group=128",
    "int6:group=32",
    "int4:group=32,rotate=32",
    "int4:group=32,rotate=32 with error feedback",
    "int2:group=32",
    "int2:group=32 with error feedback",
)
WITH_FEEDBACK = " with error feedback"


def text_of(folder: Path) -> torch.Tensor:
    """The bytes of the documentation and of the Python code."""
    files = sorted([*folder.glob("*.md"), *folder.glob("docs/**/*.md"), *folder.glob("python/**/*.py")])
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)


def batch_of(text: torch.Tensor, seed: int) -> torch.Tensor:
    starts = torch.randint(len(text) - LENGTH, (SEQUENCES,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()]).long()


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(codec: str, seed: int, steps: int, text: torch.Tensor, job: Job) -> float:
    """The loss in nats per byte on text that was not trained on."""
    cut = len(text) * 9 // 10
    torch.manual_seed(seed)
    model = Llama(SHAPE)
    replica = DistributedDataParallel(model)
    state: Compression | None = None
    if codec == "bf16":
        replica.register_comm_hook(None, bf16_compress_hook)
    else:
        name = codec.removesuffix(WITH_FEEDBACK) + "!"  # even where another codec is faster
        state = Compression(name, error_feedback=codec.endswith(WITH_FEEDBACK))
        replica.register_comm_hook(state, compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 30, (steps - step) / (0.5 * steps))
        optimizer.zero_grad(set_to_none=True)
        loss_of(replica, batch_of(text[:cut], (seed * steps + step) * job.ranks + job.rank)).backward()
        optimizer.step()
    if state is not None:
        state.close()
    with torch.no_grad():
        losses = [loss_of(model, batch_of(text[cut:], number)).item() for number in range(HELD_OUT_BATCHES)]
    job.summed(f"parameters, {codec}, seed {seed}", *model.parameters())
    return statistics.mean(losses)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--codecs", nargs="+", default=CODECS, help="bf16 must be the first")
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--text", type=Path, default=Path(__file__).parents[2], help="the checkout")
    options.set_defaults(device="cpu")
    chosen: argparse.Namespace = options.parse_args()
    job = Job(chosen, seconds=600)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // job.ranks))
    text = text_of(chosen.text)
    rows: list[dict[str, Any]] = []
    for codec in chosen.codecs:
        losses = [train(codec, seed, chosen.steps, text, job) for seed in range(chosen.seeds)]
        mean = statistics.mean(losses)
        base = rows[0]["losses"] if rows else losses
        verdict = "as bf16" if mean <= max(base) else "worse"
        rows.append({"codec": codec, "losses": losses, "mean": mean, "verdict": verdict})
        if job.rank == 0:
            print(f"{codec:44} {mean:.4f} ({min(losses):.4f} to {max(losses):.4f}), {verdict}", flush=True)
    job.facts |= {"steps": chosen.steps, "bytes of text": len(text), "rows": rows}
    weights: list[Any] = [None] * job.ranks
    dist.all_gather_object(weights, job.digests("summed"))
    job.check(all(one == weights[0] for one in weights), "the weights of the ranks have different bits")
    job.end()


if __name__ == "__main__":
    main()
