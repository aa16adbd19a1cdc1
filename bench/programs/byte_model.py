"""Trains a byte-level language model on the CPU with codecs of gradients or parameters, for several seeds, and compares
the losses.

    torchrun --nproc-per-node 2 byte_model.py --json byte_model.json

The text is that of this checkout: its documentation and its Python code. Every codec starts from the same weights and
sees the same batches as the others, for each seed. Ranks are processes of one machine, and DDP averages gradients with
narrowcast.torch.compress_hook; "bf16" is torch's own hook, which rounds them to bfloat16. "parameters" is FSDP2, which
gathers parameters with narrowcast.torch.compress_fsdp once a step, and averages gradients in fp32. A codec is "as bf16"
if the mean of its losses is within the range of those of bf16, and "worse" above it.
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
from narrowcast.torch import Compression, Differences, compress_fsdp, compress_hook
from ranks import Job, parser
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.fsdp import fully_shard
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
    "parameters int8:group=32",
    "parameters int4:group=32",
    "parameters int4:group=32 as differences",
    "parameters int2:group=32",
    "parameters int2:group=32 as differences",
)
WITH_FEEDBACK, OF_PARAMETERS, AS_DIFFERENCES = " with error feedback", "parameters ", " as differences"


def text_of(folder: Path) -> torch.Tensor:
    """The bytes of the documentation and of the Python code."""
    files = sorted([*folder.glob("*.md"), *folder.glob("docs/**/*.md"), *folder.glob("python/**/*.py")])
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)


def batch_of(text: torch.Tensor, seed: int) -> torch.Tensor:
    starts = torch.randint(len(text) - LENGTH, (SEQUENCES,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()]).long()


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def parallel(model: torch.nn.Module, codec: str, job: Job) -> tuple[torch.nn.Module, Compression | None]:
    """The model, as ranks train it, and what is to be closed at the end."""
    if codec.startswith(OF_PARAMETERS):
        name = codec.removeprefix(OF_PARAMETERS).removesuffix(AS_DIFFERENCES) + "!"  # even where another one is faster
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (job.ranks,)), reshard_after_forward=False)
        compress_fsdp(model, parameters=Differences(name) if codec.endswith(AS_DIFFERENCES) else name)
        return model, None
    replica, state = DistributedDataParallel(model), None
    if codec == "bf16":
        replica.register_comm_hook(None, bf16_compress_hook)
    else:
        state = Compression(codec.removesuffix(WITH_FEEDBACK) + "!", error_feedback=codec.endswith(WITH_FEEDBACK))
        replica.register_comm_hook(state, compress_hook)
    return replica, state


def gathered(model: Any) -> torch.Tensor:
    model.reshard()
    model.unshard()
    return torch.cat([one.detach().flatten() for one in model.parameters()]).double()


def error_of_parameters(model: Any) -> float:
    """The relative error of gathered parameters. Afterwards they are exact, as those that would be saved."""
    coded = gathered(model)
    compress_fsdp(model, parameters="raw")
    exact = gathered(model)
    return float((coded - exact).norm() / exact.norm())


def train(codec: str, seed: int, steps: int, text: torch.Tensor, job: Job) -> tuple[float, float | None]:
    """The loss in nats per byte on text that was not trained on, and the error of parameters that have a codec."""
    cut = len(text) * 9 // 10
    torch.manual_seed(seed)
    model = Llama(SHAPE)
    replica, state = parallel(model, codec, job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 30, (steps - step) / (0.5 * steps))
        optimizer.zero_grad(set_to_none=True)
        loss_of(replica, batch_of(text[:cut], (seed * steps + step) * job.ranks + job.rank)).backward()
        optimizer.step()
    if state is not None:
        state.close()
    error = error_of_parameters(model) if codec.startswith(OF_PARAMETERS) else None
    with torch.no_grad():
        losses = [loss_of(model, batch_of(text[cut:], number)).item() for number in range(HELD_OUT_BATCHES)]
    job.summed(f"parameters, {codec}, seed {seed}", *model.parameters())
    return statistics.mean(losses), error


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
        results = [train(codec, seed, chosen.steps, text, job) for seed in range(chosen.seeds)]
        losses, errors = zip(*results, strict=True)
        mean = statistics.mean(losses)
        base = rows[0]["losses"] if rows else losses
        verdict = "as bf16" if mean <= max(base) else "worse"
        rows.append({"codec": codec, "losses": losses, "mean": mean, "verdict": verdict})
        if errors[0] is not None:
            rows[-1]["errors of parameters"] = errors
        if job.rank == 0:
            print(f"{codec:44} {mean:.4f} ({min(losses):.4f} to {max(losses):.4f}), {verdict}", flush=True)
    job.facts |= {"steps": chosen.steps, "bytes of text": len(text), "rows": rows}
    weights: list[Any] = [None] * job.ranks
    dist.all_gather_object(weights, job.digests("summed"))
    job.check(all(one == weights[0] for one in weights), "the weights of the ranks have different bits")
    job.end()


if __name__ == "__main__":
    main()
