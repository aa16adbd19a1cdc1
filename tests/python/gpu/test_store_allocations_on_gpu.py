"""Calls on stores use the memory that `prepare` has allocated: none of them allocates or frees memory of the GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast import store  # noqa: E402
from narrowcast._native import cuda_driver  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

ROWS, WIDTH, PICKED = 100_000, 128, 5000
MEMORY_CALLS = ("Malloc", "Alloc", "Free", "HostRegister", "HostUnregister")


def memory_calls(run) -> list[str]:
    """The functions of CUDA that allocate, free or register memory, as often as `run` called them."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    names = [one.name for one in seen.events() if one.name.startswith(("cuda", "cu"))]
    return [name for name in names if any(part in name for part in MEMORY_CALLS)]


def skip_unless_seen(made: store.Store) -> None:
    """Skips the test if the profiler does not see the allocations of `prepare`."""
    stream = torch.cuda.Stream()
    if not any("Malloc" in name for name in memory_calls(lambda: made.prepare(10, stream=stream))):
        pytest.skip("torch's profiler does not see that prepare() allocates")


class Calls:
    """Every kind of call on a prepared store, with results in given memory."""

    def __init__(self, **options) -> None:
        torch.manual_seed(0)
        self.values = torch.randn(ROWS, WIDTH)
        self.made = store.build(self.values, spare=PICKED, **options)
        self.on_host = torch.randint(0, ROWS, (PICKED,))
        self.on_gpu, self.short = self.on_host.cuda(), self.on_host.int().cuda()
        self.rows = torch.empty(PICKED, WIDTH, device="cuda")
        self.whole = torch.empty(ROWS, WIDTH, device="cuda")
        self.made.prepare(1000)  # fewer than are gathered at once: gathers run in pieces

    def read(self) -> None:
        for chosen in (self.on_gpu, self.short, self.on_host):
            self.made.gather(chosen, out=self.rows)
        self.made.fetch(slice(100, 1100), out=self.whole[:1000])  # read by kernels
        self.made.fetch(0, out=self.whole)  # copied
        self.made.fetch(slice(0, ROWS, 3), out=self.whole[: -(-ROWS // 3)])

    def update(self) -> None:
        chosen = self.on_host.unique()
        self.made.update(chosen, self.values[chosen])

    def check(self) -> None:
        self.made.check()
        assert torch.equal(self.whole[: -(-ROWS // 3)].cpu(), self.values[::3])
        assert torch.equal(self.rows.cpu(), self.values[self.on_host])


@pytest.fixture(params=["window", "raw", "cached", "packed"])
def calls(request):
    options = {"cached": {"codec": "window"}, "packed": {"codec": "window", "layout": "packed"}}
    found = Calls(**options.get(request.param, {"codec": request.param}))
    if request.param == "cached":
        found.made.cache(2000)
    yield found
    found.made.close()


def test_the_free_memory_of_the_gpu_stays_the_same(calls):
    calls.read()  # CUDA loads kernels when they are launched first
    torch.cuda.synchronize()
    before = cuda_driver.free_bytes()
    for _ in range(20):
        calls.read()
        calls.update()
    torch.cuda.synchronize()
    assert cuda_driver.free_bytes() == before
    calls.check()


def test_calls_allocate_no_memory_from_the_first_one_on(calls):
    skip_unless_seen(calls.made)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    found = memory_calls(lambda: (calls.read(), calls.update(), calls.read()))
    assert found == []
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    calls.check()


def test_results_are_all_that_torch_allocates(calls):
    calls.read()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    results = [calls.made.gather(calls.on_gpu) for _ in range(3)]
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + len(results)


def test_calls_are_captured_where_allocations_are_errors(calls):
    own, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    calls.made.prepare(1000, stream=own)
    # "global": CUDA fails calls of any thread that may allocate.
    with torch.cuda.graph(graph, stream=own, capture_error_mode="global"):
        calls.made.gather(calls.on_gpu, out=calls.rows)
        calls.made.fetch(0, out=calls.whole)
        calls.made.fetch(slice(0, ROWS, 3), out=calls.whole[: -(-ROWS // 3)])
    graph.replay()
    torch.cuda.synchronize()
    calls.check()


def test_calls_on_blocks_allocate_no_memory():
    values = torch.randn(3000, 3000)
    out = torch.empty(3000, 3000, device="cuda")
    with store.build(values, layout="blocks") as made:
        made.prepare(8)
        skip_unless_seen(made)
        assert memory_calls(lambda: (made.fetch(0, out=out), made.gather([5, 7, 5], out=out[:3]))) == []
        assert torch.equal(out[3:].cpu(), values[3:])
        assert torch.equal(out[:3].cpu(), values[[5, 7, 5]])
