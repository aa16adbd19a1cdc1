"""Tables of tests, and comparing them bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from narrowcast.types import VALUE_TYPES

ROWS = 97
LAYOUTS = ["stride", "packed"]
# All that `auto` could choose for some table.
CODECS = [
    "raw",
    "trim",
    "window",
    "trim+window",
    "zeros+trim",
    "zeros+trim+window",
    "invariant:clusters=1",
    "invariant",
    "trim+invariant",
    "zeros+invariant",
    "zeros+trim+invariant",
]


def most_for_auto(codec: str, stored: float) -> float:
    """What `auto` may store at most if a codec stores so much. Stages in front of `invariant` must save an eighth."""
    return stored * (8 / 7 if codec.endswith("+invariant") else 1) * 1.01


def table(kind="float32", rows=ROWS, shape=(24,), seed=0) -> np.ndarray:
    """Rows of a type, as NumPy holds it: some values are 0, and one row is random bits."""
    rng = np.random.default_rng(seed)
    found = next(one for one in VALUE_TYPES if one.name == kind)
    size = (rows, *shape)
    if found.name == "bfloat16":
        values = (rng.standard_normal(size).astype(np.float32) * 0.02).view(np.uint32) >> 16
    elif found.exponent_bits and found.numpy.startswith("float"):
        values = rng.standard_normal(size) * 0.02
    else:
        values = rng.integers(0, 50, size)
    values = values.astype(found.numpy)
    values[rng.random(size) < 0.2] = 0
    if rows > 3:
        flat = values[3].reshape(-1)
        flat[:] = np.frombuffer(rng.bytes(flat.nbytes), found.numpy)
    return values


def write_safetensors(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> None:
    """Tensors by name, each with the name of its type in safetensors files."""
    header, end = {}, 0
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [end, end := end + values.nbytes]}
    text = json.dumps(header).encode()
    content = [len(text).to_bytes(8, "little"), text, *(values.tobytes() for _, values in tensors.values())]
    path.write_bytes(b"".join(content))


def bits(array) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def same(found, expected) -> bool:
    return found.shape == expected.shape and np.array_equal(bits(found), bits(expected))
