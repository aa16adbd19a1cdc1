"""The tensors of a safetensors file, encoded or not, by name."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from .. import codec as _codec
from .._native.frames import FRAME_HEADER_BYTES
from ..errors import CorruptError
from .content import Content, EncodedContent, Part, PlainContent
from .opening import FileArgument, bytes_left, opened
from .safetensors_header import Header, TensorEntry, begins_like_safetensors, read_header
from .tensor_arrays import bytes_of, new_array, packed_values

_START_BYTES = 9
NewArray = Callable[[str, tuple[int, ...], str], Any]


class Tensor:
    """A tensor of a `TensorFile`. Nothing of it is decoded before `read` or an index is used."""

    def __init__(self, file: TensorFile, entry: TensorEntry) -> None:
        self._file, self._entry = file, entry

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self._entry.name

    @property
    def dtype(self) -> str:
        """The name of its type, such as "bfloat16"."""
        return self._entry.type_name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self._entry.shape

    @property
    def safetensors_dtype(self) -> str:
        """The name of its type in safetensors, such as "BF16"."""
        return self._entry.type

    @property
    def raw_bytes(self) -> int:
        """Bytes of its values."""
        return self._entry.raw_bytes

    def read(self) -> npt.NDArray[Any]:
        """Its values. Decodes the frames that contain them.

        NumPy has no bfloat16 and no fp8: arrays have the types of ml_dtypes, or, if it is not installed, the bits as
        uint16 and uint8. Raises CorruptError, ValueError for types that NumPy cannot hold, and OSError.
        """
        values: npt.NDArray[Any] = self._file.load([self.name])[self.name]
        return values

    def __getitem__(self, index: Any) -> Any:
        """A part of its values, as in NumPy. Decodes only the frames that contain the rows of the first index."""
        return self.select(index)

    def select(self, index: Any, new: NewArray = new_array) -> Any:
        """As an index. new: makes the array, as for `TensorFile.load`."""
        indices = index if isinstance(index, tuple) else (index,)
        packed = packed_values(self._entry.type)
        if packed > 1:
            indices = _index_of_bytes(indices, self.shape, packed, self.name)
        first = indices[0] if indices else ...
        has_rows = len(self.shape) > (1 if packed > 1 else 0)
        # A bool is not a row: it adds an axis.
        if not has_rows or isinstance(first, bool) or not isinstance(first, (int, np.integer, slice)):
            return self._file.load([self.name], new)[self.name][indices]
        extent = self.shape[0]
        own: Any = 0
        if isinstance(first, slice):
            rows = range(*first.indices(extent))
            low, high = (min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1) if rows else (0, 0)
            own = slice(None, None, rows.step)
        else:
            low = int(first) + (extent if first < 0 else 0)
            high = low + 1
            if not 0 <= low < extent:
                raise IndexError(f"row {first} of tensor {self.name!r}, which has {extent} rows")
        rest = (own, *indices[1:])
        return self._file.load_rows(self._entry, low, high, new)[rest]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor of a file cannot become an array without a copy")
        values = self.read()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"tensor {self.name!r} has no extents")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r}: {self.dtype} {list(self.shape)}>"


class TensorFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file by name, in the order of their values. See `narrowcast.files.open`.

    Use it in a `with` statement, or call `close`. Several threads may read at the same time.
    """

    def __init__(self, source: FileArgument) -> None:
        """source: a path, or a binary file object, which is read from its position and left open."""
        self._owned = contextlib.ExitStack()
        file, name = self._owned.enter_context(opened(source))
        self._name = name
        try:
            self._content = _content(file, name)
            self._header = _header(self._content, name)
        except BaseException:
            self.close()
            raise
        self._entries = {entry.name: entry for entry in self._header.tensors}

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the safetensors file."""
        return dict(self._header.metadata)

    @property
    def closes(self) -> Callable[[], None]:
        """Does what `close` does, without a reference to this object."""
        return self._owned.close

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._entries:
            raise KeyError(f"{self._name} has no tensor {name!r}")
        return Tensor(self, self._entries[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __repr__(self) -> str:
        return f"<TensorFile {self._name!r}: {len(self)} tensors>"

    def load(
        self, names: Iterable[str] | None = None, new: NewArray = new_array, threads: int | None = None
    ) -> dict[str, Any]:
        """Reads several tensors; frames that they share are decoded once.

        names: all by default. new: makes the array for a type of safetensors and a shape, for a tensor of a name.
        threads: by default the number of CPUs, up to 16.
        """
        entries = [self[name]._entry for name in dict.fromkeys(self if names is None else names)]
        loaded = {entry.name: new(entry.type, entry.shape, entry.name) for entry in entries}
        parts = [Part(entry.offset, bytes_of(loaded[entry.name])) for entry in entries if entry.raw_bytes]
        self._content.read(sorted(parts, key=lambda part: part.begin), threads)
        return loaded

    def load_rows(self, entry: TensorEntry, low: int, high: int, new: NewArray) -> Any:
        """The values of a tensor whose first index is from low to high - 1."""
        array = new(entry.type, (high - low, *entry.shape[1:]), entry.name)
        row_bytes = entry.raw_bytes // entry.shape[0] if high > low else 0
        if row_bytes:
            self._content.read([Part(entry.offset + low * row_bytes, bytes_of(array))])
        return array

    def close(self) -> None:
        """Closes the file, if it was given by path."""
        self._owned.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _index_of_bytes(indices: tuple[Any, ...], shape: tuple[int, ...], packed: int, name: str) -> tuple[Any, ...]:
    """The index of the bytes that contain the values of an index. Raises ValueError if it selects parts of bytes."""
    places = [place for place, one in enumerate(indices) if one is ...]
    if len(places) == 1:
        fill = (slice(None),) * (len(shape) + 1 - len(indices))
        indices = (*indices[: places[0]], *fill, *indices[places[0] + 1 :])
    if any(isinstance(one, bool) or not isinstance(one, (int, np.integer, slice)) for one in indices):
        raise ValueError(f"tensor {name!r} of packed values takes integers and slices as indices")
    if len(indices) < len(shape) or not shape:
        return indices
    *rest, last = indices
    if isinstance(last, slice):
        start, stop, step = last.indices(shape[-1])
        if step == 1 and start % packed == 0 and stop % packed == 0:
            return (*rest, slice(start // packed, stop // packed))
    raise ValueError(f"tensor {name!r} has {packed} values in a byte, and {last} does not select whole bytes")


def _content(file: BinaryIO, name: str) -> Content:
    """The content of a file, decoded if it begins with a frame."""
    if bytes_left(file) is None:
        return EncodedContent(file, name)
    position = file.tell()
    start = file.read(FRAME_HEADER_BYTES)
    file.seek(position)
    if begins_like_safetensors(start):
        return PlainContent(file, name)
    try:
        _codec.inspect(start)
    except CorruptError:
        raise CorruptError(f"{name} is neither a safetensors file nor an encoded one") from None
    return EncodedContent(file, name)


def _header(content: Content, name: str) -> Header:
    start = np.empty(min(_START_BYTES, content.size_bytes), np.uint8)
    content.read([Part(0, start)])
    if not begins_like_safetensors(start.tobytes()):
        raise CorruptError(f"{name} is encoded, but not from a safetensors file")
    header = np.empty(min(8 + int.from_bytes(start[:8].tobytes(), "little"), content.size_bytes), np.uint8)
    content.read([Part(0, header)])
    return read_header(io.BytesIO(header.tobytes()), content.size_bytes, name)
