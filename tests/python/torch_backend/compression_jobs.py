"""Ranks that train with gradients and parameters exchanged with codecs, over groups of gloo."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from narrowcast.torch import Compression, Differences, compress_fsdp, compress_hook


def join(folder: str, rank: int, ranks: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)


def gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, tensor)
    return found


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def averages(*, folder, rank, ranks, emit):
    """Errors of averages, one line for each codec; whether all ranks have the same bits."""
    join(folder, rank, ranks)
    generator = torch.Generator().manual_seed(rank)
    for codec in ("window!", "int8:group=32!", "int4:group=32!", "int2:group=32!"):
        for dtype in (torch.float32, torch.bfloat16):
            state = Compression(codec)
            values = torch.randn(70_001, generator=generator).to(dtype)
            expected = sum(one.double() for one in gathered(values)) / ranks
            state.average(values, 0)
            same = all(torch.equal(one, values) for one in gathered(values))
            emit([codec, str(dtype), error(values, expected), same])


def two_codecs(*, folder, rank, ranks, emit):
    """Errors of averages whose contributions and results have different codecs, and those of one codec for both."""
    join(folder, rank, ranks)
    for codecs in (["int8!"], ["int4!", "int8!"], ["int8!", "int4!"], ["raw", "int4!"], ["int4!"]):
        for feedback in (False, True):
            state = Compression(codecs[0], result_codec=codecs[-1], error_feedback=feedback)
            values = torch.randn(70_001, generator=torch.Generator().manual_seed(rank))
            expected = sum(one.double() for one in gathered(values)) / ranks
            state.average(values, 0)
            emit([error(values, expected), all(torch.equal(one, values) for one in gathered(values))])


def constant_gradients(*, folder, rank, ranks, emit):
    """The error of the mean of 30 averages of the same gradients, without feedback and with it."""
    join(folder, rank, ranks)
    gradients = torch.randn(20_000, generator=torch.Generator().manual_seed(rank))
    expected = sum(gathered(gradients)) / ranks
    random = "int2:group=32,rounding=stochastic!"
    for feedback, results in ((False, None), (True, None), (False, random), (True, random)):
        state = Compression("int4:group=32!", result_codec=results, error_feedback=feedback)
        total = torch.zeros_like(gradients)
        for _ in range(30):
            values = gradients.clone()
            state.average(values, 0)
            total += values
        emit(error(total / 30, expected))


def interrupted(*, folder, rank, ranks, emit):
    """Whether a state that was saved and loaded goes on as the state itself does, and what resets it."""
    join(folder, rank, ranks)
    random = torch.Generator().manual_seed(rank)
    steps = [torch.randn(9_000, generator=random) for _ in range(4)]

    def run(state: Compression, values: torch.Tensor, parameters=()) -> torch.Tensor:
        values = values.clone()
        state.average(values, 3, parameters)
        return values

    state = Compression("int4:group=32", error_feedback=True)
    run(state, steps[0])
    saved = state.state_dict()
    loaded, other = Compression("int4:group=32", error_feedback=True), Compression("int8:group=32", error_feedback=True)
    loaded.load_state_dict(saved)
    other.load_state_dict(saved)
    fresh = Compression("int4:group=32", error_feedback=True)
    second = run(state, steps[1])
    emit(torch.equal(run(loaded, steps[1]), second))
    plain = run(fresh, steps[1])
    emit(torch.equal(plain, second))
    state.reset()
    emit(torch.equal(run(state, steps[1]), plain))
    emit(torch.equal(run(other, steps[1]), run(Compression("int8:group=32", error_feedback=True), steps[1])))
    # The losses of other parameters, and those of gradients that are not finite, are forgotten.
    emit(torch.equal(run(state, steps[1], [torch.empty(9_000)]), plain))
    infinite = steps[2].clone()
    infinite[5] = torch.inf
    found = run(fresh, infinite)
    emit(bool(torch.isinf(found[5])))
    emit(bool(torch.isfinite(run(fresh, steps[3])).all()))
    # Twice the gradients with twice the losses.
    one, two = Compression("int4:group=32", error_feedback=True), Compression("int4:group=32", error_feedback=True)
    run(one, steps[0])
    run(two, steps[0])
    two.rescale(2)
    emit(torch.equal(2 * run(one, steps[1]), run(two, 2 * steps[1])))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layers(values)


def train(model: torch.nn.Module, rank: int, steps: int = 40) -> float:
    """Learns a rotation. Returns the loss of the last step, averaged over the ranks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    target = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(100)))[0]
    generator = torch.Generator().manual_seed(rank)
    loss = torch.zeros(())
    for _ in range(steps):
        values = torch.randn(128, 64, generator=generator)
        loss = torch.nn.functional.mse_loss(model(values), values @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return float(mean / dist.get_world_size())


def ddp(*, folder, rank, ranks, emit):
    """The loss with gloo and with codecs, and whether the parameters have the same bits on all ranks."""
    join(folder, rank, ranks)
    for codec in (None, "window", "int8:group=32", "int4:group=32"):
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.05)
        if codec is not None:
            model.register_comm_hook(Compression(codec), compress_hook)
        loss = train(model, rank)
        parameters = torch.cat([one.detach().flatten() for one in model.parameters()])
        emit([codec, loss, all(torch.equal(one, parameters) for one in gathered(parameters))])


def fsdp(*, folder, rank, ranks, emit):
    """The loss with gloo and with codecs."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    join(folder, rank, ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    differences = Differences("int4:group=32!")
    for gradients, parameters in (
        (None, None),
        ("window!", "window!"),
        ("int8:group=32", None),
        ("int8:group=32", "int8:group=32"),
        (None, "int2:group=32!"),
        (None, Differences("int2:group=32!")),
        ("int8:group=32", differences),
    ):
        torch.manual_seed(0)
        model = Model()
        for layer in (model.layers[0], model.layers[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        compress_fsdp(model, gradients=gradients, parameters=parameters)
        emit(train(model, rank))
    references = differences.state_dict()
    emit([sorted(references), all(one.keys() == references.keys() for one in gathered(references))])
    emit(all(torch.equal(one, references[name]) for name in references for one in gathered(references[name])))


def wrong_uses(*, folder, rank, ranks, emit):
    """The messages of errors."""
    join(folder, rank, ranks)
    for use in (
        lambda: Compression("int9"),
        lambda: Compression("within:relative=0.01", error_feedback=True),
        lambda: Compression("int8", result_codec="int8:group=3"),
        lambda: Compression("int8", result_codec="abs"),
        lambda: Compression("sdp4bit", error_feedback=True),
        lambda: compress_fsdp(Model(), gradients="int8"),
    ):
        try:
            use()
            emit(None)
        except ValueError as refusal:
            emit(str(refusal))
