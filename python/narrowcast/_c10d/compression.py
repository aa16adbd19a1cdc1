"""Gradients and parameters of data parallelism, exchanged with a codec that the caller names."""

# Annotations are not postponed, because DDP compares those of a hook with types.
import copy
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from .. import codec as host_codec
from .. import cuda
from .._comm.explain import error_bound
from .._native.codecs import codec_text, comm_codec_number, forced, is_exact
from ..comm import Communicator
from .differences import Differences
from .reductions import Reduction
from .tensors import stream_of

# Ranks reduce parts of whole blocks, whatever the type of the values.
_PART_ELEMS: Final = 4096


class Exchange:
    """The communicators of process groups whose calls may use a codec. A group's first call creates its own."""

    def __init__(self, codec: str) -> None:
        comm_codec_number(codec)  # raises ValueError
        self.codec = codec
        self._communicators: dict[tuple[Any, torch.device], Communicator] = {}

    def communicator(self, group: Any, device: torch.device) -> Communicator:
        """The communicator of a group for tensors on a device: between GPUs, or between processes of this machine."""
        key = (group, device)
        if key not in self._communicators:
            ranks = dist.get_world_size(group)

            def exchange(mine: bytes) -> list[bytes]:
                found: list[Any] = [None] * ranks
                dist.all_gather_object(found, mine, group=group)
                return found

            self._communicators[key] = Communicator.by_exchange(
                exchange,
                dist.get_rank(group),
                ranks,
                backend="cuda" if device.type == "cuda" else "host",
                device=device.index if device.type == "cuda" else None,
            )
        return self._communicators[key]

    def close(self) -> None:
        """Ends the communicators. Every rank has to call it, or exit."""
        for comm in self._communicators.values():
            comm.close()
        self._communicators.clear()


class _Losses:
    """What the codecs lost of a bucket: of the values that this rank sent, and of the averages that it computed."""

    def __init__(self, sent: torch.Tensor, mean: torch.Tensor, shapes: list[tuple[int, ...]]) -> None:
        self.sent, self.mean, self._shapes = sent, mean, [tuple(shape) for shape in shapes]

    def fit(self, values: torch.Tensor, shapes: list[tuple[int, ...]]) -> bool:
        return self.sent.numel() == values.numel() and self.sent.dtype == values.dtype and self._shapes == shapes

    def set(self, sent: torch.Tensor, mean: torch.Tensor) -> None:
        self.sent, self.mean = (one.nan_to_num_(0.0, 0.0, 0.0) for one in (sent, mean))

    def rescale(self, factor: float) -> None:
        self.sent *= factor
        self.mean *= factor

    def move_to(self, device: torch.device) -> None:
        self.sent, self.mean = self.sent.to(device), self.mean.to(device)

    def state(self) -> tuple[torch.Tensor, torch.Tensor, list[tuple[int, ...]]]:
        return self.sent.clone(), self.mean.clone(), self._shapes


class Compression(Exchange):
    """The state of `compress_hook`: the codecs of the gradients, and what they have lost.

        state = narrowcast.torch.Compression("int8:group=32")
        ddp_model.register_comm_hook(state, narrowcast.torch.compress_hook)

    codec, result_codec: of the gradients that each rank sends and of their averages, as for `Communicator.all_reduce`.
    group: the process group of the model; None: the default one.
    error_feedback: whether what the codecs lose of a bucket is added to its next gradients, on the rank that lost it,
        so that errors do not add up over the steps ("1-bit stochastic gradient descent", Seide et al., 2014). This
        keeps a copy of the gradients, and encodes what ranks send, even where that is slower. Not for optimizers whose
        steps are no linear function of gradients, such as Adam ("1-bit Adam", Tang et al., 2021). Codecs that are exact
        lose nothing.

    Gradients that are not finite are passed on, and leave no losses. Raises ValueError for codecs that are invalid or
    do not combine.
    """

    def __init__(
        self, codec: str, *, result_codec: str | None = None, group: Any = None, error_feedback: bool = False
    ) -> None:
        super().__init__(codec)
        self.result_codec = codec if result_codec is None else result_codec
        if result_codec is not None:
            error_bound("all_reduce", codec, 2, 1, result_codec=result_codec)  # raises ValueError
        if error_feedback and codec.startswith("within:"):
            raise ValueError("error feedback needs to know the codec: name one, or set error_feedback=False")
        if error_feedback and "rounding=stochastic" in codec_text(comm_codec_number(codec)):
            raise ValueError("error feedback needs rounding=nearest: it encodes a second time to learn what is lost")
        self.group = group
        self.error_feedback = error_feedback
        self._losses: dict[int, _Losses] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def reset(self) -> None:
        """Forgets what was lost: after gradients that belong to another state of the model, such as a loaded one."""
        self._losses.clear()

    def rescale(self, factor: float) -> None:
        """The scale of the loss has changed by this factor: so do the gradients to come."""
        for losses in self._losses.values():
            losses.rescale(factor)

    def state_dict(self) -> dict[str, Any]:
        """What this rank has to keep in its checkpoint."""
        return {
            "codecs": [self.codec, self.result_codec],
            "losses": {index: losses.state() for index, losses in self._losses.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from the `state_dict` of the same rank. What belongs to other codecs or buckets is forgotten."""
        same = state["codecs"] == [self.codec, self.result_codec]
        self._losses = {int(index): _Losses(*one) for index, one in state["losses"].items()} if same else {}

    def average(self, values: torch.Tensor, bucket: int, parameters: Sequence[torch.Tensor] = ()) -> None:
        """Replaces the values of a bucket by their average over all ranks, which gets the same bits on each of them.

        values: contiguous, of a type that the codecs have, or sent raw. bucket: the number of the bucket, which
        identifies its losses. parameters: those of the gradients; the losses of others are forgotten.
        """
        comm = self.communicator(self.group, values.device)
        elems, stream = values.numel(), stream_of(values)
        if not self.error_feedback or (is_exact(self.codec) and is_exact(self.result_codec)):
            comm.all_reduce(values, op="avg", codec=self.codec, result_codec=self.result_codec, stream=stream)
            return
        part = -(-elems // (comm.ranks * _PART_ELEMS)) * _PART_ELEMS
        own = slice(comm.rank * part, (comm.rank + 1) * part)
        sent = values.new_zeros(part * comm.ranks)
        sent[:elems] = values
        losses = self._losses_of(bucket, parameters, sent)
        sent += losses.sent
        mean = torch.empty_like(sent[own])
        # What is lost is known only of values that are encoded whatever that costs.
        comm.reduce_scatter(sent, mean, op="avg", codec=forced(self.codec), stream=stream)
        mean += losses.mean
        lost = sent - _decoded(sent, self.codec)
        lost[own] = 0  # a rank does not encode what it keeps
        comm.all_gather(mean, sent, codec=self.result_codec, stream=stream)
        losses.set(lost, mean - sent[own])
        values.copy_(sent[:elems])

    def stream(self, device: torch.device) -> torch.cuda.Stream:
        """The stream of the calls, so that gradients are computed meanwhile."""
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def _losses_of(self, bucket: int, parameters: Sequence[torch.Tensor], like: torch.Tensor) -> _Losses:
        shapes = [tuple(one.shape) for one in parameters]
        losses = self._losses.get(bucket)
        if losses is None or not losses.fit(like, shapes):
            part = like.numel() // dist.get_world_size(self.group)
            losses = self._losses[bucket] = _Losses(torch.zeros_like(like), like.new_zeros(part), shapes)
        losses.move_to(like.device)
        return losses


def compress_hook(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DistributedDataParallel that averages gradients with the codec of its state."""
    gradients = bucket.buffer()
    if gradients.device.type != "cuda":
        state.average(gradients, bucket.index(), bucket.parameters())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(gradients)
        return done
    stream = state.stream(gradients.device)
    stream.wait_stream(torch.cuda.current_stream(gradients.device))
    gradients.record_stream(stream)
    with torch.cuda.stream(stream):
        state.average(gradients, bucket.index(), bucket.parameters())
        done = torch.futures.Future(devices=[gradients.device])
        done.set_result(gradients)  # waiting for the future waits for what is on the stream now
    return done


class _FsdpCall(Exchange):
    """What `fully_shard` asks of its custom calls. They are enqueued on the current stream, even with `async_op`."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the tensors of a call."""
        return torch.empty(*size, dtype=dtype, device=device)


class _ReduceScatter(_FsdpCall):
    """A reduce-scatter for `FSDPModule.set_custom_reduce_scatter`, whose contributions are encoded with `codec`."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        comm = self.communicator(group, input_tensor.device)
        Reduction(op).reduce_scatter(comm, input_tensor, output_tensor, codec=self.codec)


class _AllGather(_FsdpCall):
    """An all-gather for `FSDPModule.set_custom_all_gather`, whose parameters are encoded with `codec`."""

    def __init__(self, codec: str | Differences) -> None:
        self._differences = codec if isinstance(codec, Differences) else None
        super().__init__(codec.codec if isinstance(codec, Differences) else codec)
        self._name = ""

    def of(self, name: str) -> "_AllGather":
        """That of the module with this name, with the same communicators."""
        one = copy.copy(self)
        one._name = name
        return one

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> None:
        comm = self.communicator(group, input_tensor.device)
        if self._differences is not None:
            # The backward pass may gather from fewer ranks than the forward pass.
            self._differences.all_gather(comm, f"{self._name}/{comm.ranks}", input_tensor, output_tensor)
            return
        # Parameters of several types arrive as bytes.
        codec = self.codec if input_tensor.is_floating_point() else "auto"
        comm.all_gather(input_tensor, output_tensor, codec=codec, stream=stream_of(input_tensor))


def compress_fsdp(
    model: torch.nn.Module, *, gradients: str | None = None, parameters: str | Differences | None = None
) -> None:
    """Has the modules of a model that `fully_shard` was applied to exchange gradients and parameters with codecs.

    gradients, parameters: codecs such as "int8:group=32"; None: as before. A module whose parameters have several
        types gathers their bytes, which lossy codecs leave as they are. `Differences`, of their own for each call of
        this function, know parameters by the name of their module and the number of ranks that they are gathered from.

    Raises ValueError if `fully_shard` was applied to no module.
    """
    from torch.distributed.fsdp import FSDPModule

    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("the model has no module to which fully_shard was applied")
    scatter = None if gradients is None else _ReduceScatter(gradients)
    gather = None if parameters is None else _AllGather(parameters)
    for name, module in modules:
        if scatter is not None:
            module.set_custom_reduce_scatter(scatter)
        if gather is not None:
            module.set_custom_all_gather(gather.of(name))


def _decoded(values: torch.Tensor, codec: str) -> torch.Tensor:
    """What a receiver of these values gets."""
    codec, result = codec.removesuffix("!"), torch.empty_like(values)
    if codec == "auto":
        return values
    if values.device.type != "cuda":
        host_codec.decode(host_codec.encode(values, codec=codec), out=result)
        return result
    name, elems, stream = str(values.dtype).removeprefix("torch."), values.numel(), stream_of(values)
    frame, workspace = (
        torch.empty(count, dtype=torch.uint8, device=values.device)
        for count in (host_codec.bound(name, elems, codec=codec), cuda.workspace_bytes(name, elems, codec=codec))
    )
    status = torch.zeros(1, dtype=torch.int32, device=values.device)
    cuda.encode(values, out=frame, workspace=workspace, codec=codec, stream=stream)
    cuda.decode(frame, out=result, status=status, codec=codec, stream=stream)
    return result
