"""A safetensors file of tensors in memory, which is read like a file but never written."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .safetensors_header import MAX_HEADER_BYTES, TYPES, Header, TensorEntry
from .tensor_arrays import TensorBytes, tensor_bytes

_ALIGNMENT = 8


class TensorSource:
    """The bytes of a safetensors file. Several threads may read at the same time."""

    def __init__(self, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None) -> None:
        """Raises TypeError for names, types and metadata that safetensors does not have."""
        if not isinstance(tensors, Mapping):
            raise TypeError(f"tensors is of type {type(tensors).__name__}, not a mapping of names to arrays")
        found = {name: _checked(name, value) for name, value in tensors.items()}
        # As the safetensors library: wide types first, so that all values are aligned.
        rank = {kind: -number for number, kind in enumerate(TYPES)}
        ordered = sorted(found.items(), key=lambda one: (rank[one[1].type], one[0]))
        description: dict[str, Any] = {}
        if metadata is not None:
            if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
                raise TypeError("metadata does not map strings to strings")
            description["__metadata__"] = dict(metadata)
        at = 0
        for name, tensor in ordered:
            offsets = [at, at + tensor.content.size]
            description[name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": offsets}
            at = offsets[1]
        text = json.dumps(description, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        if len(text) > MAX_HEADER_BYTES:
            raise ValueError(f"the header has {len(text)} bytes, more than {MAX_HEADER_BYTES}")
        head = len(text).to_bytes(8, "little") + text
        self._contents = [np.frombuffer(head, np.uint8), *(tensor.content for _, tensor in ordered)]
        self._ends = np.cumsum([content.size for content in self._contents]).tolist()
        self.size_bytes = self._ends[-1]
        entries = [
            TensorEntry(name, tensor.type, tensor.shape, end - tensor.content.size, tensor.content.size)
            for (name, tensor), end in zip(ordered, self._ends[1:], strict=True)
        ]
        self.header = Header(entries, dict(metadata or {}), len(head))

    def read(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer."""
        target = np.frombuffer(buffer, np.uint8)
        number, filled = bisect.bisect_right(self._ends, offset), 0
        while filled < target.size:
            content = self._contents[number]
            start = offset + filled - (self._ends[number] - content.size)
            count = min(content.size - start, target.size - filled)
            target[filled : filled + count] = content[start : start + count]
            filled += count
            number += 1


def _checked(name: str, value: Any) -> TensorBytes:
    if not isinstance(name, str) or name == "__metadata__":
        raise TypeError(f"{name!r} is not the name of a tensor")
    return tensor_bytes(value, name)
