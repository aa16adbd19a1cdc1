"""Stores take tensors of torch on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast import store  # noqa: E402

ROWS = 3001


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int32", "int64"]
)
def test_results_have_the_type_of_the_rows_and_the_device_of_the_indices(dtype):
    rows = (torch.randn(ROWS, 3, 20) * 9).to(getattr(torch, dtype))
    index = torch.randint(0, ROWS, (7, 11), device="cuda")
    with store.build(rows) as made:
        for chosen in (index, index.int()):
            found = made.gather(chosen)
            assert (found.shape, found.dtype, found.device) == ((7, 11, 3, 20), rows.dtype, index.device)
            assert torch.equal(found.cpu().view(torch.uint8), rows[index.cpu()].view(torch.uint8))
        out = torch.empty(5, 3, 20, dtype=rows.dtype, device="cuda")
        assert made.fetch(slice(10, 20, 2), out=out) is out
        assert torch.equal(out.cpu().view(torch.uint8), rows[10:20:2].view(torch.uint8))
        assert made[index[0]].shape == (11, 3, 20)


def test_rows_of_the_result_may_be_apart():
    rows = torch.randn(ROWS, 96)
    wide = torch.zeros(500, 128, device="cuda")
    index = torch.randint(0, ROWS, (500,))
    with store.build(rows, codec="window") as made:
        for chosen in (index, index.cuda()):
            made.gather(chosen, out=wide[:, 16:112])
            assert torch.equal(wide[:, 16:112].cpu(), rows[index])
            assert not wide[:, :16].any()
            assert not wide[:, 112:].any()
        with pytest.raises(ValueError, match="not contiguous"):
            made.gather(index.cuda(), out=torch.zeros(96, 500, device="cuda").T)
        with pytest.raises(ValueError, match="contiguous"):
            made.gather(torch.zeros(20, dtype=torch.int64, device="cuda")[::2])


def test_calls_are_ordered_on_the_current_stream():
    rows = torch.randn(ROWS, 256)
    own = torch.cuda.Stream()
    with store.build(rows) as made, torch.cuda.stream(own):
        made.prepare(ROWS)
        for attempt in range(10):
            torch.cuda._sleep(3_000_000)  # so that the indices are late
            index = (torch.arange(ROWS, device="cuda") + attempt) % ROWS
            doubled = made.gather(index) * 2
            index.zero_()
            assert torch.equal(doubled.cpu(), rows.roll(-attempt, 0) * 2)


def test_captured_gathers_read_new_indices_and_rows():
    rows = torch.randn(ROWS, 64)
    index = torch.zeros(100, dtype=torch.int64, device="cuda")
    with store.build(rows, spare=10) as made:
        own = torch.cuda.Stream()
        made.prepare(100, stream=own)
        graph = torch.cuda.CUDAGraph()
        out = torch.empty(100, 64, device="cuda")
        with torch.cuda.graph(graph, stream=own):
            made.gather(index, out=out, stream=own)
            scaled = out + 1
        for attempt in range(3):
            rows[attempt] = attempt
            made.update([attempt], rows[attempt : attempt + 1])
            index.copy_(torch.arange(100) * (attempt + 1))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(scaled.cpu(), rows[:: attempt + 1][:100] + 1)
        made.check()


def test_gradients_and_other_arrays_of_the_host_are_taken():
    rows = torch.randn(ROWS, 64)
    out = torch.empty(2, 64, device="cuda", requires_grad=True)
    with store.build(rows) as made:
        for index in ([3, 4], np.array([3, 4]), torch.tensor([3, 4]), torch.tensor([3, 4]).pin_memory()):
            with torch.no_grad():
                out.zero_()
            made.gather(index, out=out)
            assert torch.equal(out.detach().cpu(), rows[3:5])
