"""Tensors that are encoded in host memory, by name."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import cuda
from .._native.codecs import codec_number
from ..codec import decode_batch, encode_batch, inspect
from ..errors import CorruptError
from ..types import value_type
from .frame_reader import FrameReader, HostFrame, frame_reader
from .host_memory import HostMemory, aligned
from .values import dense, in_memory_order, plain

# Raw bytes that are encoded at a time: with the frames in their final place, a bound of the extra memory.
_BATCH_BYTES = 256 << 20
# Values of a frame: a GPU decodes one while the next one is copied.
_FRAME_BYTES = 8 << 20


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
    frames: list[torch.Tensor]  # of _FRAME_BYTES of values each, the last of fewer: uint8, views of memory
    value_type: str
    strides: tuple[int, ...]  # of the decoded tensor, whose values are adjacent in memory
    memory: HostMemory = field(repr=False)

    @functools.cached_property
    def host_frames(self) -> list[HostFrame]:
        rest = self.info.raw_bytes - _FRAME_BYTES * (len(self.frames) - 1)
        sizes = [_FRAME_BYTES] * (len(self.frames) - 1) + [rest]
        return [
            HostFrame.at(frame, self.info.codec, self.value_type, size)
            for frame, size in zip(self.frames, sizes, strict=True)
        ]


class EncodedTensors(Mapping[str, torch.Tensor]):
    """Tensors that are encoded in host memory. Reading one decodes it: on the CPU, or on a GPU after copying the frame.

    tensors: such as a state dict. Tensors that share their memory, such as tied weights, are stored once.
    device: where `[]` returns tensors.
    codec: one of `narrowcast.codecs()`. With lossless codecs, tensors keep all of their bits. Types that have no codec,
        such as bool, are stored raw.
    threads: how many encode and decode at the same time on the CPU; 0: the CPUs that this process may use.
    pinned: keep the frames in page-locked memory, for copies to GPUs; None: if `device` is a GPU.

    Every read returns a new tensor, with the strides that `torch.empty_like` gives to the original: those of dense
    tensors, such as channels last, are kept. Conjugated and negated views become the values for which they stand. Reads
    on a GPU are enqueued on the current stream. The mapping cannot be changed.
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
        self._codec, self._threads = supported_codec(codec), threads
        self._pinned = self.device.type == "cuda" if pinned is None else pinned
        self._entries: dict[str, _Entry] = {}
        self._status: dict[torch.device, torch.Tensor] = {}
        stored: dict[Any, tuple[str, weakref.ref[torch.Tensor]]] = {}
        owners: dict[str, str] = {}
        batch: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            reject_special(name, tensor)
            bits = (tensor.is_conj(), tensor.is_neg())
            place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, bits)
            owner, held = stored.get(place, (name, None))
            # The memory of a tensor that a lazy mapping has made may be reused when it is gone.
            if tensor.numel() == 0 or held is None or held() is None:
                owner, stored[place] = name, (name, weakref.ref(tensor))
                batch[name] = tensor
                if sum(one.nbytes for one in batch.values()) >= _BATCH_BYTES:
                    self._add(batch)
                    batch = {}
            owners[name] = owner
        self._add(batch)
        self._entries = {name: self._entries[owner] for name, owner in owners.items()}

    def _add(self, tensors: dict[str, torch.Tensor]) -> None:
        """Encodes tensors into memory of their own."""
        if not tensors:
            return
        contents = [dense(plain(one).cpu()) for one in tensors.values()]
        parts = [_parts(_as_values(in_memory_order(one))) for one in contents]
        made = encode_batch([one for own in parts for one in own], codec=self._codec, threads=self._threads)
        frames = iter(made)
        memory = HostMemory(sum(aligned(frame.size) for frame in made), pinned=self._pinned)
        offset = 0
        for name, content, own in zip(tensors, contents, parts, strict=True):
            places = []
            for frame in itertools.islice(frames, len(own)):
                place = memory.tensor[offset : offset + frame.size]
                place.copy_(torch.from_numpy(frame.view()))
                offset += aligned(frame.size)
                places.append(place)
            wire_bytes = sum(place.numel() for place in places)
            header = inspect(places[0])
            info = TensorInfo(content.shape, content.dtype, content.nbytes, wire_bytes, header.codec)
            self._entries[name] = _Entry(info, places, header.dtype, content.stride(), memory)

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
        outs = [_new(one, target) for one in entries]
        self._decode(entries, outs, target, None)
        return outs

    def read_into(self, outs: Mapping[str, torch.Tensor], *, reader: FrameReader | None = None) -> None:
        """Decodes tensors into memory of the caller.

        outs: tensors on one device, of the shapes and types of the encoded ones, and contiguous or with the strides of
            `read`, which saves a copy. On a GPU the calls are enqueued on the current stream.

        Raises KeyError for a name that does not exist, and ValueError if a tensor does not fit.
        """
        entries = [self._entries[name] for name in outs]
        for (name, out), entry in zip(outs.items(), entries, strict=True):
            if (out.shape, out.dtype) != (entry.info.shape, entry.info.dtype):
                raise ValueError(
                    f"the output for {name} has shape {tuple(out.shape)} and type {out.dtype}, "
                    f"but the tensor has {tuple(entry.info.shape)} and {entry.info.dtype}"
                )
            if out.stride() != entry.strides and not out.is_contiguous():
                raise ValueError(f"the output for {name} is not contiguous")
        devices = {out.device for out in outs.values()}
        if len(devices) > 1:
            raise ValueError(f"the outputs are on several devices: {', '.join(sorted(map(str, devices)))}")
        for device in devices:
            # Those with the values in another order are copied.
            targets = [
                out if out.stride() == entry.strides else _new(entry, device)
                for out, entry in zip(outs.values(), entries, strict=True)
            ]
            self._decode(entries, targets, supported_device(device), reader)
            for out, target in zip(outs.values(), targets, strict=True):
                if out is not target:
                    out.copy_(target)

    def _decode(
        self, entries: list[_Entry], outs: list[torch.Tensor], device: torch.device, reader: FrameReader | None
    ) -> None:
        if device.type == "cuda":
            self._decode_on_gpu(entries, outs, device, reader or frame_reader(device))
            return
        frames = [frame for one in entries for frame in one.frames]
        parts = [part for out in outs for part in _parts(_as_values(in_memory_order(out)))]
        decode_batch(frames, outs=parts, threads=self._threads)

    def _decode_on_gpu(
        self, entries: list[_Entry], outs: list[torch.Tensor], device: torch.device, reader: FrameReader
    ) -> None:
        if device not in self._status:
            self._status[device] = torch.zeros(1, dtype=torch.int32, device=device)
            # Other streams may decode before this one has set it to 0.
            torch.cuda.current_stream(device).synchronize()
        frames: list[HostFrame] = []
        places: list[int] = []
        for entry, out in zip(entries, outs, strict=True):
            if out.numel():
                entry.memory.devices.add(device)
                frames += entry.host_frames
                places += range(out.data_ptr(), out.data_ptr() + out.nbytes, _FRAME_BYTES)
        reader.read(frames, places, self._status[device])

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

    @property
    def largest_frame_bytes(self) -> int:
        """Bytes of the largest frame in host memory: what `FrameReader.reserve` takes."""
        return max((frame.numel() for one in self._entries.values() for frame in one.frames), default=0)

    def _unique(self) -> list[_Entry]:
        return list({id(one): one for one in self._entries.values()}.values())

    def __copy__(self) -> EncodedTensors:
        return self  # it cannot be changed

    def __deepcopy__(self, memo: dict[int, Any]) -> EncodedTensors:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("EncodedTensors cannot be pickled: pickle the decoded tensors, dict(encoded)")


def _new(entry: _Entry, device: torch.device) -> torch.Tensor:
    """Memory for a decoded tensor."""
    return torch.empty_strided(entry.info.shape, entry.strides, dtype=entry.info.dtype, device=device)


def reject_special(name: str, tensor: torch.Tensor) -> None:
    """Raises TypeError or ValueError for tensors that are more than values in memory, or less."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"{name} is of type {type(tensor).__name__}: only plain tensors can be encoded")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"{name} has layout {tensor.layout} and type {tensor.dtype}: only dense tensors can be encoded")
    if tensor.device.type == "meta":
        raise ValueError(f"{name} is on the meta device: it has no values")


def supported_codec(codec: str) -> str:
    """The codec. Raises ValueError or InvalidArgumentError if frames cannot have it."""
    codec_number(codec)
    return codec


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


def _parts(values: torch.Tensor) -> list[torch.Tensor]:
    """The values of each frame of a tensor of one dimension."""
    return list(values.split(max(_FRAME_BYTES // values.element_size(), 1))) if values.numel() else [values]


def _as_values(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, as bytes if its type is not a value type."""
    try:
        value_type(tensor.dtype)
    except ValueError:
        return tensor.view(torch.uint8)
    return tensor
