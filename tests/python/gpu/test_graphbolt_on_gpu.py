"""Features of GraphBolt that a GPU reads. Without DGL, whose packages need an old torch, a stand-in takes its place."""

from __future__ import annotations

import importlib
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast import store  # noqa: E402

ROWS, WIDTH = 5000, 96
MODULE = "narrowcast.integrations.graphbolt"


@pytest.fixture
def made(monkeypatch):
    """Makes a feature of a tensor."""
    with monkeypatch.context() as patch:
        try:
            importlib.import_module("dgl.graphbolt")
        except ImportError:
            stand_in = types.ModuleType("dgl.graphbolt")
            stand_in.Feature = type("Feature", (), {})
            patch.setitem(sys.modules, "dgl", types.ModuleType("dgl"))
            patch.setitem(sys.modules, "dgl.graphbolt", stand_in)
            # Imported for this test, and forgotten after it.
            patch.setitem(sys.modules, MODULE, None)
            del sys.modules[MODULE]
        ours = importlib.import_module(MODULE)
        yield lambda x: ours.StoreFeature(store.build(x))


def test_reads_are_those_of_a_tensor_and_on_its_device(made):
    x = torch.randn(ROWS, WIDTH).bfloat16()
    feature = made(x)
    ids = torch.randint(0, ROWS, (3000,))
    for chosen in (ids.cuda(), ids.int().cuda(), ids.cuda()[:0]):
        read = feature.read(chosen)
        assert read.is_cuda
        assert torch.equal(read.cpu(), x[chosen.cpu()])
    assert torch.equal(feature.read(ids), x[ids])
    assert feature.read_async_num_stages(torch.device("cuda")) == len(list(feature.read_async(ids.cuda())))
    feature.read(torch.tensor([0, ROWS], device="cuda"))
    with pytest.raises(IndexError, match="1 indices"):
        feature.store.check()


def test_reads_see_updates(made):
    x = torch.randn(ROWS, WIDTH)
    feature = made(x)
    ids = torch.tensor([17, 4], device="cuda")
    feature.update(torch.ones(2, WIDTH, device="cuda"), ids)
    assert torch.equal(feature.read(ids).cpu(), torch.ones(2, WIDTH))


def test_reads_of_other_streams_are_awaited(made):
    x = torch.randn(ROWS, WIDTH)
    feature = made(x)
    reading = torch.cuda.Stream()
    for seed in range(20):
        numbers = torch.randint(0, ROWS, (3000,), generator=torch.Generator().manual_seed(seed))
        ids = numbers.cuda()
        reading.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(reading):
            torch.cuda._sleep(1_000_000)  # the read is late
            (read,) = feature.read_async(ids)
        rows = read.wait() + 0
        # The memory of the rows is free on their stream, but not before they were used here.
        with torch.cuda.stream(reading):
            torch.empty(3000, WIDTH, device="cuda").zero_()
        assert torch.equal(rows.cpu(), x[numbers])
