"""Tensors that are exchanged again and again, as differences from what all ranks got the last time."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from .._comm.groups import open_group
from .._native.codecs import comm_codec_number
from ..comm import Communicator
from ..errors import MismatchError
from .tensors import dense, memory_of, moved, stream_of, writable

_FLOATS: Final = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_DIGEST_BYTES: Final = 16


class _Reference:
    """What all ranks of a communicator got from the last call with a tensor, bit for bit."""

    def __init__(self, values: torch.Tensor, comm: Communicator | None) -> None:
        self.values = values
        # None: nobody has compared what the ranks have.
        self.comm = None if comm is None else weakref.ref(comm)


class Differences:
    """Gathers and broadcasts tensors that change little between calls, such as weights, with a lossy codec.

        differences = narrowcast.torch.Differences("int4")
        for step in range(steps):
            for name, weight in sorted(model.state_dict().items()):
                differences.broadcast(comm, name, weight)

    A rank sends its values minus the reference, which is what all ranks got from the last call with this name, and all
    ranks add what they decode to the reference ("SDP4Bit", Jia et al., 2024). So errors do not add up, and all ranks
    get the same bits. The error of a finite value is at most that of the codec (`narrowcast.codec.error_bound`) for the
    largest difference, and the rounding of this difference and of the result to the type of the values. Values above
    half of the largest one of their type may become infinite.

    codec: of the differences, as for the calls of a communicator. Values other than bfloat16, float16, float32 and
        float64 are sent as they are.
    first: that of a tensor's first call, and of the first one on another communicator or after a checkpoint was loaded,
        if not all ranks have the same reference. "auto": the ranks get exact values.

    NaN and infinity arrive as the codec passes them on. Where there was one, the next call sends the value itself.

    Every rank keeps the reference of every tensor, of the type and size of the result. The calls of a name are made on
    all ranks, with the same counts and types, on one stream and in no `narrowcast.group()`. Raises ValueError for an
    invalid codec.
    """

    def __init__(self, codec: str, *, first: str = "auto") -> None:
        for one in (codec, first):
            comm_codec_number(one)  # raises ValueError
        self.codec, self.first = codec, first
        self._references: dict[str, _Reference] = {}

    def all_gather(
        self, comm: Communicator, name: str, values: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Gathers the `values` of all ranks, in rank order, as `Communicator.all_gather`.

        out: contiguous; this rank's part of it may be `values`. None: the result is the reference itself, which must
            not be changed, and which the next call with this name changes.
        """

        def gather(codec: str, sent: torch.Tensor, received: torch.Tensor) -> None:
            comm.all_gather(sent, received, codec=codec, stream=stream_of(received))

        elems = values.numel()
        own = slice(comm.rank * elems, (comm.rank + 1) * elems)
        whole = self._exchange(comm, name, values, own, elems * comm.ranks, out, gather)
        rows = values.shape[:1].numel()
        return whole.view(comm.ranks * rows, *values.shape[1:]) if out is None else out

    def broadcast(
        self,
        comm: Communicator,
        name: str,
        values: torch.Tensor,
        out: torch.Tensor | None = None,
        *,
        root: int = 0,
    ) -> torch.Tensor:
        """Sends the root's `values` to all ranks. On other ranks only their type and shape count.

        out: as for `all_gather`. The root gets what the others decode, too. `values` are not changed.
        """

        def broadcast(codec: str, sent: torch.Tensor, received: torch.Tensor) -> None:
            comm.broadcast(sent, received, root=root, codec=codec, stream=stream_of(received))

        own = slice(None) if comm.rank == root else None
        whole = self._exchange(comm, name, values, own, values.numel(), out, broadcast)
        return whole.view(values.shape) if out is None else out

    def reset(self, name: str | None = None) -> None:
        """Forgets the reference of a tensor; None: of all. Every rank has to do so before the same call."""
        if name is None:
            self._references.clear()
        else:
            self._references.pop(name, None)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The references, by name. They are not copied: save them before the next call."""
        return {name: reference.values for name, reference in self._references.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continues from copies of these references. Every rank has to load some, or reset, before the same call.

        The next call of each name compares the references of the ranks, and sends with `first` what is missing or
        differs on one of them. Call `reset` instead if the weights to come have nothing to do with the loaded ones.
        """
        self._references = {name: _Reference(values.clone(), None) for name, values in state.items()}

    # References outlive inference mode.
    @torch.inference_mode(False)  # type: ignore[untyped-decorator]
    def _exchange(
        self,
        comm: Communicator,
        name: str,
        values: torch.Tensor,
        own: slice | None,
        elems: int,
        out: torch.Tensor | None,
        call: Callable[[str, torch.Tensor, torch.Tensor], None],
    ) -> torch.Tensor:
        """Makes a call, copies its result to `out`, and returns the reference, which is the same.

        own: the place of `values` in the reference; None: this rank sends nothing. call: with a codec, what is sent,
        and memory for what is received.
        """
        if open_group.depth:
            raise ValueError("the calls of Differences cannot be in a group")
        mine = dense(values).view(-1)
        received = mine.new_empty(elems) if out is None else out.detach().view(-1)
        if values.dtype not in _FLOATS:
            call("auto", moved(mine), moved(received))
            return received
        # Whoever does not finish the call has no reference.
        kept = self._references.pop(name, None)
        reference = self._agreed(comm, name, kept, like=received)
        if reference is None:
            call(self.first, mine, received)
            reference = received if out is None else received.clone()
        else:
            reference.nan_to_num_(0.0, 0.0, 0.0)
            call(self.codec, received if own is None else mine - reference[own], received)
            reference += received
            if out is not None:
                with writable(out):
                    received.copy_(reference)
        self._references[name] = _Reference(reference, comm)
        return reference

    def _agreed(
        self, comm: Communicator, name: str, kept: _Reference | None, *, like: torch.Tensor
    ) -> torch.Tensor | None:
        """The reference, if all ranks of the communicator have the same, for tensors like this."""
        if kept is not None and (kept.values.numel() != like.numel() or kept.values.dtype != like.dtype):
            kept = None
        if kept is not None and kept.comm is not None and kept.comm() is comm:
            return kept.values
        on_host = None if kept is None else kept.values.cpu()
        content = bytes(_DIGEST_BYTES) if on_host is None else _digest(memory_of(on_host))
        mine = torch.frombuffer(bytearray(_digest(name.encode()) + content), dtype=torch.uint8).to(like.device)
        whole = mine.new_empty(comm.ranks * mine.numel())
        comm.all_gather(mine, whole, codec="raw", stream=stream_of(whole))
        rows = whole.cpu().view(comm.ranks, 2, _DIGEST_BYTES)
        if (rows[:, 0] != rows[0, 0]).any():
            raise MismatchError(f"ranks exchange differences of tensors with other names, not all of {name!r}")
        return None if kept is None or (rows[:, 1] != rows[0, 1]).any() else kept.values.to(like.device)


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
