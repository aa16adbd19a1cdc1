"""Tensors for the demo and the benchmarks: real ones that ship with the package, and synthetic ones."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._files.containers import segments
from .._files.opening import opened_source
from .._files.segment import UnknownValuesError
from ..types import ValueType, value_type
from . import oracle

SLICES = Path(__file__).parents[1] / "data" / "llama_slices.safetensors"

_PACKAGED = {"weights": "weights", "gradients": "grads", "kv": "kv", "partials": "tp_partial"}
_SUFFIXES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
SYNTHETIC = ("normal", "words", "counts", "random")
NAMES = (*_PACKAGED, *SYNTHETIC)
_SYNTHETIC_ELEMS = 1 << 20
_WORDS = 1 / 28  # share of the words that a document has
_COUNTED = 1 / 5  # share of the counts that are not 0
_FILE_BYTES = 256 << 20


def tensors(path: Path, dtype: str | None = None) -> dict[str, tuple[ValueType, npt.NDArray[np.uint8]]]:
    """The value type and bytes of every tensor in a safetensors, npy or plain file, by name."""
    found = {}
    with opened_source(path) as source:
        for part in segments(source.file, source.name, dtype):
            if part.tensor is not None:
                raw = np.empty(part.raw_bytes, np.uint8)
                source.read(part.offset, raw.data)
                found[part.tensor] = part.dtype, raw
    return found


def packaged() -> dict[str, tuple[ValueType, npt.NDArray[np.uint8]]]:
    """The tensors that ship with the package."""
    return tensors(SLICES)


def _synthetic(name: str, rng: np.random.Generator) -> npt.NDArray[np.floating[Any]]:
    if name == "normal":
        return rng.standard_normal(_SYNTHETIC_ELEMS)
    if name == "words":
        return 1.0 * (rng.random(_SYNTHETIC_ELEMS) < _WORDS)
    return 1.0 * rng.geometric(0.5, _SYNTHETIC_ELEMS) * (rng.random(_SYNTHETIC_ELEMS) < _COUNTED)


@functools.cache
def sample(name: str, dtype: str) -> npt.NDArray[Any]:
    """Values of a type, as bits. Do not modify them.

    name: a packaged tensor ("weights", ...), "normal", "words" (zeros and few ones, as in a bag of words), "counts"
        (zeros and small numbers, half of them 1, a quarter 2, ...), "random" (any bits), or a file, whose first tensor
        of the type is used, up to 256 MiB. Raises ValueError if there is none.
    """
    kind = value_type(dtype)
    rng = np.random.default_rng(0)
    if name == "random":
        return rng.integers(0, 256, _SYNTHETIC_ELEMS * kind.bytes, np.uint8).view(kind.numpy)
    if name in SYNTHETIC:
        values = _synthetic(name, rng)
        if not kind.is_float:
            return ((64 if name == "normal" else 1) * values).astype(kind.numpy)
        return oracle.narrow(values if kind.name == "float64" else values.astype(np.float32), kind)
    if name in _PACKAGED:
        tensor = f"{_PACKAGED[name]}_{_SUFFIXES.get(dtype, dtype)}"
        found = packaged().get(tensor)
        if found is None:
            raise ValueError(f"the package contains no {name} of {dtype}: use another --datatype, or a file")
        return found[1].view(kind.numpy)
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"{name!r} is neither a file nor one of {', '.join(NAMES)}")
    try:
        found_in_file = tensors(path)
    except UnknownValuesError:
        found_in_file = tensors(path, dtype)
    for own_kind, raw in found_in_file.values():
        if own_kind == kind and raw.size:
            return raw[:_FILE_BYTES].view(kind.numpy)
    raise ValueError(f"{name} has no tensor of {dtype}")


def start_of(values: npt.NDArray[Any], rank: int) -> int:
    """The position in the sample where the values of a rank begin."""
    return rank * 104_729 % values.size


def of_rank(values: npt.NDArray[Any], rank: int, elems: int, *, offset: int = 0) -> npt.NDArray[Any]:
    """`elems` values of the repeated sample, from the start position of the rank plus the offset."""
    start = (start_of(values, rank) + offset) % values.size
    own = values[start : start + elems]
    return own.copy() if own.size == elems else np.resize(np.concatenate([values[start:], values[:start]]), elems)


def tiled(raw: npt.NDArray[np.uint8], count_bytes: int) -> npt.NDArray[np.uint8]:
    """Bytes, repeated to `count_bytes`."""
    return np.resize(raw, count_bytes)
