"""A drop-in for `safetensors.torch` whose files are encoded: smaller, with the same tensors.

    from narrowcast.safetensors import load_file, safe_open, save_file

The functions have the arguments of safetensors 0.8. Those that load also read safetensors files that are not encoded.
`narrowcast decode` turns a file that `save_file` wrote into a safetensors file. torch is imported when a tensor is
read. `narrowcast.files` does the same for NumPy.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from . import files
from ._files.shared_tensors import duplicates, shared_names
from ._files.tensor_arrays import new_array, new_torch_tensor
from ._files.tensor_file import NewArray, Tensor, TensorFile
from .errors import CorruptError, InvalidArgumentError

try:
    from safetensors import SafetensorError as _Base
except ImportError:
    _Base = Exception

__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]


def __dir__() -> list[str]:
    return sorted(__all__)


_TORCH_NAMES = ("pt", "torch", "pytorch")
_NUMPY_NAMES = ("np", "numpy")
_BACKENDS = ("mmap", "pread")


class SafetensorError(_Base):  # type: ignore[misc]
    """Something is wrong with a file or an argument. It is a `safetensors.SafetensorError`, if that is installed."""


class _InvalidError(InvalidArgumentError, SafetensorError):
    """An argument is invalid."""


class _MissingTensorError(_InvalidError, KeyError):
    """A file does not have a tensor."""

    __str__ = Exception.__str__


class _CorruptError(CorruptError, SafetensorError):
    """A file is malformed."""


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Makes the errors of malformed files those of safetensors, too."""
    try:
        yield
    except CorruptError as error:
        raise _CorruptError(str(error)) from None


def load_file(
    filename: str | os.PathLike[str], device: str | int | Any = "cpu", *, backend: str = "mmap"
) -> dict[str, Any]:
    """The tensors of a file, encoded or not, by name, as `safetensors.torch.load_file`.

    device: where the tensors are put, as in torch.
    backend: as for `safe_open`.

    Raises an error that is a CorruptError and a SafetensorError for a malformed file, ValueError for types that this
    torch does not have, and OSError.
    """
    with safe_open(filename, "pt", device, backend=backend) as file:
        return file.get_tensors()


def load(data: Any) -> dict[str, Any]:
    """The tensors of the content of a file, encoded or not, as `safetensors.torch.load`. Raises as `load_file`."""
    with _reading(), TensorFile(io.BytesIO(data)) as file:
        return file.load(new=new_torch_tensor)


def save_file(
    tensors: dict[str, Any], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Encodes tensors to a file, as `safetensors.torch.save_file`.

    tensors: of torch, by name; contiguous, and without memory in common: `save_model` saves models that share weights,
        and `narrowcast.files.save_file` copies what is not contiguous.
    metadata: of the safetensors file.

    Raises ValueError for tensors that are not contiguous or sparse, RuntimeError for those that share memory, TypeError
    for names and types that safetensors does not have, and OSError.
    """
    files.save_file(_savable(tensors), filename, metadata=metadata)


def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """The content of the file that `save_file` writes. Raises the same exceptions."""
    return files.save(_savable(tensors), metadata=metadata)


def save_model(
    model: Any,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Encodes the parameters and buffers of a module to a file, as `safetensors.torch.save_model`.

    Of tensors that share memory, one is saved that contains the others. The metadata maps their names to its name.
    force_contiguous: copy tensors that are not contiguous; False: they raise ValueError.

    Raises what `save_file` raises, and RuntimeError if none of the tensors that share memory contains the others.
    """
    tensors = model.state_dict()
    removed = duplicates(tensors)
    if removed:
        metadata = {**removed, **(metadata or {})}
    kept = {name: tensor for name, tensor in tensors.items() if name not in removed}
    if force_contiguous:
        kept = {name: tensor.contiguous() for name, tensor in kept.items()}
    try:
        save_file(kept, filename, metadata)
    except ValueError as error:
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True).") from None


def load_model(
    model: Any,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: str | int | Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[set[str], list[str]]:
    """Loads a file into a module, as `safetensors.torch.load_model`.

    strict: raise RuntimeError if tensors of the module are missing in the file, or the file has others.
    device, backend: as for `load_file`.

    Returns the names that are missing in the file, and those that the module does not have. Raises what `load_file`
    raises.
    """
    tensors = load_file(filename, device, backend=backend)
    removed = duplicates(model.state_dict(), preferred=tensors)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = set(missing)
    # A tensor that is also in the file under its other name would be loaded twice, with different values.
    unexpected += [name for name in removed if name not in missing]
    missing -= removed.keys()
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                lines.append(f"    {what} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names)))
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


class safe_open:
    """Opens a file, encoded or not, for access to single tensors, as `safetensors.safe_open`."""

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str,
        device: str | int | Any = "cpu",
        *,
        backend: str = "mmap",
    ) -> None:
        """framework: "pt" or "numpy". device: where tensors of torch are put.

        backend: "mmap" or "pread". Files are read by pread in both cases: encoded values cannot be mapped.
        """
        if framework not in (*_TORCH_NAMES, *_NUMPY_NAMES):
            raise _InvalidError(
                f"{framework!r} is not a framework (known: {', '.join((*_TORCH_NAMES, *_NUMPY_NAMES))})"
            )
        if backend not in _BACKENDS:
            raise _InvalidError(f"{backend!r} is not a backend (known: {', '.join(_BACKENDS)})")
        self._new: NewArray = new_torch_tensor if framework in _TORCH_NAMES else new_array
        if self._new is new_array and str(device) != "cpu":
            raise _InvalidError(f"device is {device!r}, but arrays of NumPy are on the CPU")
        self._device = device
        try:
            with _reading():
                self._opened: TensorFile | None = TensorFile(filename)
        except FileNotFoundError:
            error = FileNotFoundError(f"No such file or directory: {os.fspath(filename)}")
            error.errno = errno.ENOENT
            raise error from None
        # Slices may be read after the end of the `with` statement: the file is closed when all of them are gone.
        weakref.finalize(self._opened, self._opened.closes)

    @property
    def _file(self) -> TensorFile:
        if self._opened is None:
            raise _InvalidError("File is closed")
        return self._opened

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._file)

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of their values in the file."""
        return list(self._file)

    def metadata(self) -> dict[str, str] | None:
        """The metadata of the file; None if it has none."""
        return self._file.metadata or None

    def get_tensor(self, name: str) -> Any:
        """A tensor. Raises an error that is a SafetensorError and a KeyError if the file does not have it."""
        self._tensor(name)
        with _reading():
            return _on(self._file.load([name], self._new)[name], self._device)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors by name, in the order of their values in the file."""
        with _reading():
            loaded = self._file.load(new=self._new)
        return {name: _on(tensor, self._device) for name, tensor in loaded.items()}

    def get_slice(self, name: str) -> Slice:
        """A tensor of which parts are read by index. Raises as `get_tensor`."""
        return Slice(self._tensor(name), self._new, self._device)

    def _tensor(self, name: str) -> Tensor:
        if name not in self._file:
            raise _MissingTensorError(f"File does not contain tensor {name}: {self._file!r} has no tensor {name!r}")
        return self._file[name]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened = None


def _safe_open_handle(f: Any, framework: str, device: str | int | Any = "cpu", *, backend: str = "mmap") -> safe_open:
    """As `safe_open`, for an open file, which is opened again by its name."""
    f.fileno()
    return safe_open(f.name, framework, device, backend=backend)


class Slice:
    """A tensor of which parts are read by index, as a slice of `safetensors`."""

    def __init__(self, tensor: Tensor, new: NewArray, device: Any) -> None:
        self._tensor, self._new, self._device = tensor, new, device

    def get_shape(self) -> list[int]:
        """Its extents."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The name of its type in safetensors, such as "BF16"."""
        return self._tensor.safetensors_dtype

    def __getitem__(self, index: Any) -> Any:
        """A part of the tensor, as in torch. For NumPy, an index beyond the tensor raises SafetensorError."""
        if self._new is new_array:
            index = _within(index, self._tensor.shape)
        with _reading():
            return _on(self._tensor.select(index, self._new), self._device)


def _within(index: Any, shape: tuple[int, ...]) -> Any:
    """The index. Raises SafetensorError where safetensors does: slices must end within the tensor."""
    if isinstance(index, list):
        if index:
            raise _InvalidError("Non empty lists are not implemented")
        return slice(0, 0)
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(one, bool) or not isinstance(one, (int, np.integer, slice)) for one in items):
        return index
    if len(items) > len(shape):
        raise _InvalidError(f"{len(items)} indices for a tensor with {len(shape)} dimensions")
    for place, (one, extent) in enumerate(zip(items, shape, strict=False)):
        if isinstance(one, slice):
            last = None if one.stop is None or one.stop <= extent else one.stop - 1
        else:
            if one < -extent:
                raise _InvalidError(f"Invalid index {one} for dimension {place} of size {extent}")
            last = None if one < extent else one
        if last is not None:
            raise _InvalidError(
                f"Error during slicing [{', '.join(map(_index_text, items))}] with shape {list(shape)}: "
                f"index {last} out of bounds for tensor dimension #{place} of size {extent}"
            )
    return index


def _index_text(one: Any) -> str:
    """An index as it is written in brackets."""
    if not isinstance(one, slice):
        return str(one)
    text = ":".join("" if part is None else str(part) for part in (one.start, one.stop))
    return text if one.step in (None, 1) else f"{text}:{one.step}"


def _savable(tensors: Any) -> dict[str, Any]:
    """The tensors, after the checks of `safetensors.torch.save_file`, with its messages where programs compare them."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not (hasattr(tensor, "layout") and hasattr(tensor, "is_contiguous")):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    sparse = [name for name, tensor in tensors.items() if str(tensor.layout) != "torch.strided"]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support. You can make it "
            "a dense tensor before saving with `.to_dense()` but be aware this might make a much larger file than "
            "needed."
        )
    for names in shared_names(tensors):
        raise RuntimeError(
            f"the tensors {', '.join(sorted(names))} share memory, and would not share it after loading: save their "
            "module with save_model, or clone them"
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {name!r} is not contiguous: save tensor.contiguous().")
    return tensors


def _on(tensor: Any, device: Any) -> Any:
    return tensor if device == "cpu" else tensor.to(device)
