"""Trains a small Llama on synthetic tokens with DDP or FSDP2, and reports the bits of the losses.

    torchrun --nproc-per-node 2 train.py --parallel ddp --json ddp.json

DDP sums gradients (all-reduce). FSDP2 gathers parameters and sums gradients (all-gather, reduce-scatter). Its losses
before the first step depend on all-gathers only, so they have the same bits with every library.

With --gradients, and --parameters of FSDP2, they are exchanged by narrowcast.torch with codecs, which may be lossy.

The steps of the model `deep` are limited by the host, which launches many small kernels, those of `wide` by the GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics

import torch
import torch.distributed as dist
import torch.nn.functional as F
from llama import Llama, Shape, fill
from ranks import Job, parser
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

MODELS = {
    "deep": Shape(vocabulary=16384, width=1024, layers=12, heads=16, kv_heads=4, head_dim=64, hidden=2816),
    "wide": Shape(vocabulary=16384, width=4096, layers=6, heads=32, kv_heads=8, head_dim=128, hidden=11008),
}
SMALL = Shape(vocabulary=512, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=160)
USED_TOKENS = 256
TIMED_STEPS = 100
# The precision of bfloat16, 8 bits: sums in another order differ by this much. While the loss falls steeply, training
# amplifies any difference, so there it is only reported. At the end the losses are close again.
FEW_STEPS, TOLERANCE = 20, 2.0**-8


def batch_of(step: int, rank: int, sequences: int, length: int, device: torch.device) -> torch.Tensor:
    """Sequences that start at a random token and grow by a random stride, which is easy to learn."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    first = torch.randint(USED_TOKENS, (sequences, 1), generator=generator)
    stride = torch.randint(1, 9, (sequences, 1), generator=generator)
    return ((first + stride * torch.arange(length + 1)) % USED_TOKENS).to(device)


def parallel(model: Llama, chosen: argparse.Namespace, job: Job) -> nn.Module:
    if chosen.parallel == "ddp":
        replica = DistributedDataParallel(model, device_ids=[job.device.index] if job.on_gpu else None)
        if chosen.gradients is not None:
            from narrowcast.torch import Compression, compress_hook

            feedback = chosen.error_feedback
            state = Compression(chosen.gradients, result_codec=chosen.results, error_feedback=feedback)
            replica.register_comm_hook(state, compress_hook)
        return replica
    mesh = dist.init_device_mesh(job.device.type, (job.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if chosen.gradients is not None or chosen.parameters is not None:
        from narrowcast.torch import Differences, compress_fsdp

        parameters = Differences(chosen.parameters) if chosen.differences else chosen.parameters
        compress_fsdp(model, gradients=chosen.gradients, parameters=parameters)
    return model


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--parallel", choices=("ddp", "fsdp2"), required=True)
    options.add_argument(
        "--model", choices=tuple(MODELS), default="deep", help="the model on GPUs; CPUs always train a small one"
    )
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--sequences", type=int, default=4, help="number of sequences per rank")
    options.add_argument("--length", type=int, default=512, help="number of tokens per sequence")
    options.add_argument("--gradients", metavar="CODEC", help="the codec of gradients, such as int8:group=32")
    options.add_argument("--results", metavar="CODEC", help="DDP: the codec of averages; default: that of gradients")
    options.add_argument("--parameters", metavar="CODEC", help="FSDP2: the codec of parameters")
    options.add_argument("--differences", action="store_true", help="FSDP2: send what has changed of parameters")
    options.add_argument("--error-feedback", action="store_true", help="DDP: add what the codec loses to later steps")
    chosen = options.parse_args()
    # cuBLAS is deterministic only with its own workspaces. The variable is read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    job = Job(chosen)
    shape = MODELS[chosen.model] if job.on_gpu else SMALL
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False

    with torch.device(job.device):
        plain = Llama(shape).to(torch.bfloat16)
    fill(plain)
    job.facts["parameters"] = sum(weight.numel() for weight in plain.parameters())
    model = parallel(plain, chosen, job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def loss_of(step: int) -> torch.Tensor:
        tokens = batch_of(step, job.rank, chosen.sequences, chosen.length, job.device)
        # The backward passes of the fused kernels sum in the order in which their CTAs run.
        with sdpa_kernel(SDPBackend.MATH):
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    if chosen.parallel == "fsdp2":
        with torch.no_grad():
            job.moved("losses before the first step", *(loss_of(-1 - step) for step in range(8)))

    losses, seconds = [], []
    for step in range(chosen.steps):

        def train_step(step: int = step) -> None:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(step)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

        seconds.append(job.time(train_step))
    values = torch.stack(losses).double().tolist()
    job.near("losses of the first steps", values[:FEW_STEPS], TOLERANCE)
    job.near("losses of the first step and the last ones", [values[0], *values[-FEW_STEPS:]], TOLERANCE)
    job.near("losses", values, None)
    job.summed("losses", *losses)
    weights = [getattr(weight, "_local_tensor", weight) for weight in model.parameters()]
    job.summed("parameters at the end", *weights)
    job.check(values[-1] < values[0], f"the loss went from {values[0]} to {values[-1]}: nothing was learnt")
    job.seconds["step"] = job.slowest([statistics.median(seconds[-TIMED_STEPS:])])[0]
    job.facts |= {"first loss": values[0], "last loss": values[-1], "steps": chosen.steps}
    job.end()


if __name__ == "__main__":
    main()
