"""Gathers with a cache in GPU memory return the same rows as without, also while rows change."""

from __future__ import annotations

from functools import partial

import narrowcast
import numpy as np
import pytest
from gpu_store import ROWS, Array, Versions, empty, same, table, update_under_readers, version_of
from narrowcast import store
from narrowcast._native.cuda_driver import Stream
from narrowcast.errors import CudaError, TooSmallError
from narrowcast.store import RowIndexError

POLICIES = ["static", "lru"]


def zipf(count: int, seed: int, rows: int = ROWS) -> np.ndarray:
    """Indices of which few are very frequent."""
    rng = np.random.default_rng(seed)
    ranks = np.minimum(rng.zipf(1.2, count) - 1, rows - 1)
    return np.random.default_rng(99).permutation(rows)[ranks]


def gathered(made, picked, stream, kind=np.float32) -> np.ndarray:
    out = empty((len(picked), *made.row_shape), kind)
    made.gather(Array(np.asarray(picked)), out=out, stream=stream)
    stream.synchronize()
    return out.read()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("codec", ["window", "raw", "zeros+trim+window"])
def test_cached_gathers_are_indexing(policy, layout, codec, stream):
    if codec == "raw" and layout == "packed":
        codec = "plain"  # raw rows are not packed
    rows = table()
    with store.build(rows, codec=codec, layout=layout) as made:
        made.prepare(4000, stream=stream)
        info = made.cache(600, policy, stream=stream)
        assert 600 <= info.capacity < 616
        assert info.bytes >= info.capacity * info.slot_bytes
        total = 0
        for attempt in range(8):
            picked = zipf(9000 if attempt == 3 else 3000, attempt)
            total += len(picked)
            assert same(gathered(made, picked, stream), rows[picked])
        info = made.cache_info(stream=stream)
        assert info.hits + info.misses == total
        assert info.rows <= info.capacity
        assert info.rows <= info.fills - info.evictions
        assert info.hits > (0 if policy == "static" else total // 3)
        found = made.counters()
        assert found.rows_read == total
        assert found.damaged_rows_read == 0
        made.check()
        assert made.cache(stream=stream).bytes == 0
        assert same(gathered(made, picked, stream), rows[picked])


def test_a_cache_that_cannot_be_replaced_stays(stream):
    rows = table()
    with store.build(rows, codec="window") as made:
        made.prepare(4000, stream=stream)
        made.cache(600, "lru", stream=stream)
        picked = zipf(3000, 1)
        gathered(made, picked, stream)
        before = made.cache_info(stream=stream)
        for size_bytes, error in ((1, TooSmallError), (1 << 50, CudaError)):
            with pytest.raises(error):
                made.cache(size_bytes=size_bytes, policy="static", stream=stream)
            assert made.cache_info(stream=stream) == before
        assert same(gathered(made, picked, stream), rows[picked])
        assert made.cache_info(stream=stream).hits > before.hits


def test_rows_that_were_gathered_are_hits(stream):
    rows = table()
    with store.build(rows, codec="window") as made:
        made.cache(4000, "lru", stream=stream)
        picked = np.arange(100, 300)
        for _ in range(2):
            assert same(gathered(made, picked, stream), rows[picked])
        info = made.cache_info(stream=stream)
        assert info.evictions == 0
        assert info.hits + info.misses == 400
        # Some rows do not fit.
        assert info.overflows < 10
        assert 200 <= info.misses <= 200 + info.overflows
        assert info.misses == info.fills
        # Duplicates of a row that is not in the cache are fetched once.
        assert same(gathered(made, [7] * 500, stream), rows[[7] * 500])
        assert made.cache_info(stream=stream).fills == info.fills + 1


def test_static_caches_keep_the_given_rows(stream):
    rows = table()
    warm = np.random.default_rng(3).permutation(ROWS)
    with store.build(rows, codec="window") as made:
        info = made.cache(1000, "static", warm=warm, stream=stream)
        assert info.capacity - 16 <= info.rows <= info.capacity
        assert (info.hits, info.misses) == (0, 0)
        assert same(gathered(made, warm[:500], stream), rows[warm[:500]])
        assert made.cache_info(stream=stream).hits > 450
        assert same(gathered(made, np.arange(ROWS), stream), rows)
        assert made.cache_info(stream=stream).evictions == 0
        # Without rows, the first ones.
        made.cache(1000, "static", stream=stream)
        before = made.cache_info(stream=stream).hits
        assert same(gathered(made, np.arange(500), stream), rows[:500])
        assert made.cache_info(stream=stream).hits - before > 450


def test_recent_rows_replace_others_only_under_lru(stream):
    rows = table(20000, (32,))
    first, second = np.arange(640), np.arange(1000, 1400)
    for policy in POLICIES:
        with store.build(rows, codec="window") as made:
            made.cache(640, policy, warm=first, stream=stream)
            for _ in range(2):
                before = made.cache_info(stream=stream)
                assert same(gathered(made, second, stream), rows[second])
            info = made.cache_info(stream=stream)
            hits = info.hits - before.hits
            if policy == "lru":
                assert hits > 350
                assert info.evictions > 250
            else:  # some sets had room
                assert hits < 150
                assert info.evictions == 0


@pytest.mark.parametrize("codec", ["window", "raw"])
@pytest.mark.parametrize("policy", POLICIES)
def test_updated_rows_are_read_again(codec, policy, stream):
    rows = table()
    rng = np.random.default_rng(6)
    with store.build(rows, codec=codec, spare=300, layout="stride") as made:
        made.cache(3000, policy, stream=stream)
        everything = np.arange(ROWS)
        assert same(gathered(made, everything, stream), rows)
        for attempt in range(6):
            picked = rng.choice(ROWS, 200, replace=False)
            rows[picked] = table(200, seed=attempt + 20)
            made.update(picked, rows[picked])
            assert same(gathered(made, picked, stream), rows[picked])
            assert same(gathered(made, everything, stream), rows)
        assert made.cache_info(stream=stream).dropped > 300
        # More changes than the table remembers.
        rows = table(seed=77)
        for _ in range(4):
            made.update(everything, rows)
        dropped = made.cache_info(stream=stream).dropped
        assert same(gathered(made, everything, stream), rows)
        assert made.cache_info(stream=stream).dropped > dropped
        made.check()


def test_rows_that_do_not_fit_are_read_from_host_memory(stream):
    rows = table()
    rng = np.random.default_rng(8)
    odd = rng.choice(ROWS, 40, replace=False)
    rows[odd] = np.frombuffer(rng.bytes(40 * 512), np.float32).reshape(40, 128)
    for layout in ("stride", "packed"):
        with store.build(rows, codec="window", layout=layout) as made:
            info = made.cache(3 * ROWS, "lru", stream=stream)  # every set has room for its rows
            assert info.slot_bytes < 512
            for _ in range(3):
                assert same(gathered(made, np.arange(ROWS), stream), rows)
            info = made.cache_info(stream=stream)
            # The second call finds them in the cache, from which they are dropped, and the third reads them again.
            assert 40 <= info.overflows < 1000
            assert info.misses == info.fills == ROWS + info.overflows
            assert made.counters().rows_read == 3 * ROWS
            made.check()


def test_bad_indices_are_reported_with_a_cache(stream):
    rows = table()
    with store.build(rows) as made:
        made.cache(100, "lru", stream=stream)
        for _ in range(2):
            found = gathered(made, [3, -1, ROWS, 1 << 40, 4], stream)
            assert same(found[[0, 4]], rows[[3, 4]])
            assert not found[1:4].any()
            with pytest.raises(RowIndexError, match="3 indices"):
                made.check()


def test_captured_gathers_use_the_cache_and_see_updates(stream):
    rows = table()
    picked = zipf(2000, 1)
    with store.build(rows, codec="window", spare=50) as made:
        made.prepare(2000, stream=stream)
        made.cache(500, "lru", stream=stream)
        index, out = Array(picked), empty((2000, 128))
        with stream.capture() as graph:
            made.gather(index, out=out, stream=stream)
        for attempt in range(4):
            rows[picked[:20]] = version_of(attempt, 1, 128)
            made.update(picked[:20], rows[picked[:20]])
            graph.launch(stream)
            stream.synchronize()
            assert same(out.read(), rows[picked])
        graph.close()
        assert made.cache_info(stream=stream).hits > 2000


@pytest.mark.parametrize("codec", ["window", "raw"])
def test_cached_readers_see_the_old_or_the_new_row(codec, tmp_path):
    count, versions = 400, Versions(400, 128, 10)
    path = tmp_path / "table.ncs"
    store.build(versions.every[0], path=path, host=None, codec=codec, layout="stride", spare=60)
    with store.open(path, "shared") as made:

        def gathers(policy: str):
            own = Stream()
            made.cache(count // 2, policy, stream=own)
            return lambda: gathered(made, np.arange(count), own)

        update_under_readers(made, versions, [partial(gathers, policy) for policy in POLICIES])


def test_an_encoded_cache_has_a_third_more_rows_than_a_raw_one(stream):
    rng = np.random.default_rng(1)
    values = rng.standard_normal((ROWS, 256)).astype(np.float32) * 0.02
    rows = (values.view(np.uint32) >> 16).astype(np.uint16)
    found = {}
    for codec in ("window", "raw"):
        with store.build(rows, codec=codec, dtype="bfloat16") as made:
            info = made.cache(0, "lru", size_bytes=500_000, stream=stream)
            assert info.bytes <= 500_000
            for attempt in range(4):
                picked = zipf(4000, attempt)
                assert same(gathered(made, picked, stream, np.uint16), rows[picked])
            found[codec] = made.cache_info(stream=stream)
    assert found["window"].capacity >= 1.35 * found["raw"].capacity
    assert found["window"].hits > found["raw"].hits


def test_caches_that_cannot_be_are_rejected(stream):
    with store.build(table()) as made:
        with pytest.raises(ValueError, match="policy"):
            made.cache(100, "random", stream=stream)
        with pytest.raises(ValueError, match="both"):
            made.cache(100, size_bytes=100, stream=stream)
        made.prepare(100, stream=stream)
        made.cache(100, stream=stream)
        with pytest.raises(ValueError, match="before cache"):
            made.prepare(200, stream=stream)
        with pytest.raises(narrowcast.TooSmallError, match="at least"):
            made.cache(size_bytes=100, stream=stream)
    with (
        store.build(np.zeros(100_000, np.float32)) as made,
        pytest.raises(narrowcast.UnsupportedError, match="blocks"),
    ):
        made.cache(100, stream=stream)
