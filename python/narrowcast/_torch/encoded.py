"""Tensors that are encoded in host memory, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import cuda
from ..codec import decode_batch, encode_batch, inspect
from ..errors import CorruptError
from ..types import value_type
from .host_memory import HostMemory, aligned

# Raw bytes that are encoded at a time: with the frames in their final place, a bound of the extra memory.
_BATCH_BYTES = 256 << 20


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of `EncodedTensors`."""

    shape: torch.Size  #: of the decoded tensor
    dtype: torch.dtype  #: of the decoded tensor
    raw_bytes: int  #: of the decoded tensor
    wire_bytes: int  #: of its frame in host memory
    codec: str  #: of its frame

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes (smaller is better); None when there are no values."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


@dataclass(frozen=True)
class _Entry:
    info: TensorInfo
    frame: torch.Tensor  # uint8, a view of memory
    value_type: str
    memory: HostMemory = field(repr=False)


class EncodedTensors(Mapping[str, torch.Tensor]):
    """Tensors that are encoded in host memory. Reading one decodes it: on the CPU, or on a GPU after copying the frame.

    tensors: such as a state dict. Tensors that share their memory, such as tied weights, are stored once.
    device: where `[]` returns tensors.
    codec: one of `narrowcast.codecs()`. With lossless codecs, tensors keep all of their bits. Types that have no codec,
        such as bool, are stored raw.
    threads: how many encode and decode at the same time on the CPU; 0: the CPUs that this process may use.
    pinned: keep the frames in page-locked memory, for copies to GPUs; None: if `device` is a GPU.

    Every read returns a new contiguous tensor. Reads on a GPU are enqueued on the current stream. The mapping cannot be
    changed.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        device: Any = "cpu",
        codec: str = "window",
        threads: int = 0,
        pinned: bool | None = None,
    ) -> None:
        self.device: torch.device = supported_device(device)
        self._codec, self._threads = codec, threads
        self._pinned = self.device.type == "cuda" if pinned is None else pinned
        self._entries: dict[str, _Entry] = {}
        self._status: dict[torch.device, torch.Tensor] = {}
        # All at once: the memory of a tensor that a lazy mapping has made could be reused, and be taken for shared.
        held = dict(tensors)
        stored: dict[Any, str] = {}
        owners: dict[str, str] = {}
        batch: dict[str, torch.Tensor] = {}
        for name, tensor in held.items():
            reject_special(name, tensor)
            place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            owners[name] = stored.setdefault(place, name) if tensor.numel() else name
            if owners[name] == name:
                batch[name] = tensor
                if sum(one.nbytes for one in batch.values()) >= _BATCH_BYTES:
                    self._add(batch)
                    batch = {}
        self._add(batch)
        self._entries = {name: self._entries[owner] for name, owner in owners.items()}

    def _add(self, tensors: dict[str, torch.Tensor]) -> None:
        """Encodes tensors into memory of their own."""
        if not tensors:
            return
        contents = [one.detach().cpu().contiguous() for one in tensors.values()]
        coded = [_as_values(one) for one in contents]
        frames = encode_batch(coded, codec=self._codec, threads=self._threads)
        memory = HostMemory(sum(aligned(frame.size) for frame in frames), pinned=self._pinned)
        offset = 0
        for name, content, frame in zip(tensors, contents, frames, strict=True):
            place = memory.tensor[offset : offset + frame.size]
            place.copy_(torch.from_numpy(frame.view()))
            offset += aligned(frame.size)
            header = inspect(frame)
            info = TensorInfo(content.shape, content.dtype, content.nbytes, frame.size, header.codec)
            self._entries[name] = _Entry(info, place, header.dtype, memory)

    # What a mapping has.

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.read([name])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # Mapping's would decode

    def __repr__(self) -> str:
        return f"EncodedTensors({len(self)} tensors, {self.wire_bytes} of {self.raw_bytes} bytes, device={self.device})"

    def read(self, names: Sequence[str], *, device: Any = None) -> list[torch.Tensor]:
        """Decodes tensors, which is faster than one after the other.

        device: where to return them; None: `device`. On a GPU the calls are enqueued on the current stream.

        Raises KeyError for a name that does not exist.
        """
        target = self.device if device is None else supported_device(device)
        entries = [self._entries[name] for name in names]
        outs = [torch.empty(one.info.shape, dtype=one.info.dtype, device=target) for one in entries]
        if target.type == "cuda":
            for entry, out in zip(entries, outs, strict=True):
                self._decode_on_gpu(entry, out)
        else:
            values = [_as_values(out) for out in outs]
            decode_batch([one.frame for one in entries], outs=values, threads=self._threads)
        return outs

    def _decode_on_gpu(self, entry: _Entry, out: torch.Tensor) -> None:
        if out.numel() == 0:
            return
        if out.device not in self._status:
            self._status[out.device] = torch.zeros(1, dtype=torch.int32, device=out.device)
            # Other streams may decode before this one has set it to 0.
            torch.cuda.current_stream(out.device).synchronize()
        frame = entry.frame.to(out.device, non_blocking=True)
        cuda.decode(
            frame,
            out=_as_values(out),
            status=self._status[out.device],
            stream=torch.cuda.current_stream(out.device),
            codec=entry.info.codec,
            dtype=entry.value_type,
        )

    def check(self) -> None:
        """Waits for reads on GPUs and raises CorruptError if a frame in host memory has been damaged.

        Reads on the CPU check the frames themselves.
        """
        for device, status in self._status.items():
            torch.cuda.synchronize(device)  # reads may run on any stream
            if int(status.item()):
                raise CorruptError(f"a frame that was decoded on {device} is corrupt: host memory has been overwritten")

    def info(self, name: str) -> TensorInfo:
        """Describes a tensor without decoding it. Raises KeyError."""
        return self._entries[name].info

    @property
    def raw_bytes(self) -> int:
        """Bytes of the decoded tensors; tied tensors count once."""
        return sum(one.info.raw_bytes for one in self._unique())

    @property
    def wire_bytes(self) -> int:
        """Bytes of the frames in host memory."""
        return sum(one.info.wire_bytes for one in self._unique())

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes (smaller is better); None when there are no values."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None

    def _unique(self) -> list[_Entry]:
        return list({id(one): one for one in self._entries.values()}.values())


def reject_special(name: str, tensor: torch.Tensor) -> None:
    """Raises TypeError or ValueError for tensors that are more than values in memory, or less."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"{name} is a {type(tensor).__name__}: only plain tensors can be encoded")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"{name} has layout {tensor.layout} and type {tensor.dtype}: only dense tensors can be encoded")
    if tensor.device.type == "meta":
        raise ValueError(f"{name} is on the meta device: it has no values")


def supported_device(device: Any) -> torch.device:
    """The device, with an index if it is a GPU. Raises ValueError for devices that cannot decode."""
    found = torch.device(device)
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {found}: only cpu and cuda are supported")
    if found.type == "cuda":
        if not torch.cuda.is_available() or not cuda.device_count():
            raise ValueError(f"device is {found}, but no CUDA GPU was found")
        if found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
    return found


def _as_values(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, as bytes if its type is not a value type."""
    try:
        value_type(tensor.dtype)
    except ValueError:
        return tensor.reshape(-1).view(torch.uint8)
    return tensor
