"""A drop-in for `safetensors.torch` whose files are encoded: smaller, with the same tensors.

    from narrowcast.safetensors import load_file, safe_open, save_file

`load_file` and `safe_open` also read safetensors files that are not encoded. `narrowcast decode` turns a file that
`save_file` wrote into a safetensors file. torch is imported when a tensor is read. `narrowcast.files` does the same
for NumPy.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from . import files
from ._files.tensor_arrays import new_array, new_torch_tensor
from ._files.tensor_file import NewArray, Tensor, TensorFile

__all__ = ["load_file", "safe_open", "save_file"]


def __dir__() -> list[str]:
    return sorted(__all__)


_TORCH_NAMES = ("pt", "torch", "pytorch")
_NUMPY_NAMES = ("np", "numpy")


def load_file(filename: str | os.PathLike[str], device: str | int | Any = "cpu") -> dict[str, Any]:
    """The tensors of a file, encoded or not, by name, as `safetensors.torch.load_file`.

    device: where the tensors are put, as in torch.

    Raises CorruptError for a malformed file, ValueError for types that this torch does not have, and OSError.
    """
    with TensorFile(filename) as file:
        loaded = file.load(new=new_torch_tensor)
    return {name: _on(tensor, device) for name, tensor in loaded.items()}


def save_file(
    tensors: dict[str, Any], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Encodes tensors to a file, as `safetensors.torch.save_file`.

    tensors: of torch, by name. Those that are not contiguous are copied, and those that share memory are each written.
    metadata: of the safetensors file.

    Raises TypeError for names and types that safetensors does not have, and OSError.
    """
    files.save_file(tensors, filename, metadata=metadata)


class safe_open:
    """Opens a file, encoded or not, for access to single tensors, as `safetensors.safe_open`."""

    def __init__(self, filename: str | os.PathLike[str], framework: str, device: str | int | Any = "cpu") -> None:
        """framework: "pt" or "numpy". device: where tensors of torch are put."""
        if framework not in (*_TORCH_NAMES, *_NUMPY_NAMES):
            raise ValueError(f"{framework!r} is not a framework (known: {', '.join((*_TORCH_NAMES, *_NUMPY_NAMES))})")
        self._new: NewArray = new_torch_tensor if framework in _TORCH_NAMES else new_array
        self._device = device if framework in _TORCH_NAMES else "cpu"
        self._file = TensorFile(filename)

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
        """A tensor. Raises KeyError if the file does not have it."""
        return _on(self._file.load([name], self._new)[name], self._device)

    def get_slice(self, name: str) -> Slice:
        """A tensor of which parts are read by index. Raises KeyError if the file does not have it."""
        return Slice(self._file[name], self._new, self._device)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


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
        return _on(self._tensor.select(index, self._new), self._device)


def _on(tensor: Any, device: Any) -> Any:
    return tensor if device == "cpu" else tensor.to(device)
