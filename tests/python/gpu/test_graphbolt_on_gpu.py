"""Features of GraphBolt that a GPU reads."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("dgl.graphbolt", reason="dgl is not installed", exc_type=ImportError)
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast import store  # noqa: E402
from narrowcast.integrations.graphbolt import StoreFeature  # noqa: E402

ROWS = 5000


def test_reads_of_other_streams_are_awaited():
    x = torch.randn(ROWS, 96)
    feature = StoreFeature(store.build(x))
    reading = torch.cuda.Stream()
    for seed in range(20):
        numbers = torch.randint(0, ROWS, (3000,), generator=torch.Generator().manual_seed(seed))
        ids = numbers.cuda()
        reading.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(reading):
            (read,) = feature.read_async(ids)
        rows = read.wait() + 0
        # The memory of the rows is free on their stream, but not before they were used here.
        with torch.cuda.stream(reading):
            torch.empty(3000, 96, device="cuda").zero_()
        assert torch.equal(rows.cpu(), x[numbers])
