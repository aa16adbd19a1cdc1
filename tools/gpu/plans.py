"""Tests and measures generated kernels of plans, between ranks that share one GPU.

    plans.py [--ranks N]... [--test] [--measure] >plans.json

The library is NARROWCAST_LIBRARY. Tests compare the bits of plans with those of the operations. Measurements run the
hand-written kernels and the generated ones in the same process, in CUDA graphs, one after the other. Data travels
through the GPU's L2 cache and not over NVLink.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from ctypes import c_size_t, c_ubyte, c_uint64, c_void_p
from typing import Any

from gather_results import machine

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
SMS = 128
CALLS, REPLAYS, TURNS = 20, 3, 3
MAX_RESTARTS = 40  # of the process that runs the tests
ARCHITECTURE = 90
DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
)

Step = dict[str, Any]


def copy(source: Step, *to: Step) -> Step:
    return {"step": "copy", "from": [source], "to": list(to)}


def reduce(sources: list[Step], *to: Step) -> Step:
    return {"step": "reduce", "from": sources, "to": list(to)}


def place(buffer: str, chunk: int, **more: Any) -> Step:
    return {"buffer": buffer, "chunk": chunk, **more}


class Pairs:
    """Plans in which every rank has a channel to every other one."""

    def __init__(self, ranks: int, codec: str = "raw", kind: str = "ring") -> None:
        self.ranks, self.codec = ranks, codec
        pairs = list(itertools.product(range(ranks), range(ranks)))
        depth = {"depth": 2} if kind == "ring" else {}
        self.channels = [{"kind": kind, "from": a, "to": b, **depth} for a, b in pairs if a != b]
        self.number = {(one["from"], one["to"]): i for i, one in enumerate(self.channels)}

    def message(self, source: int, target: int) -> Step:
        return {"channel": self.number[source, target], "codec": self.codec}

    def after(self, rank: int) -> list[int]:
        return [(rank + step) % self.ranks for step in range(1, self.ranks)]

    def before(self, rank: int) -> list[int]:
        return [(rank - step) % self.ranks for step in range(1, self.ranks)]

    def plan(self, operation: str, groups_of: Callable[[int], list[list[Step]]], **more: Any) -> str:
        extra = more.pop("rank", {})
        ranks = [{"groups": [{"steps": steps} for steps in groups_of(rank)], **extra} for rank in range(self.ranks)]
        plan = {"narrowcast_plan": 1, "operation": operation, "channels": self.channels, "ranks": ranks, **more}
        return json.dumps(plan)


def all_gather(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sends = [copy(place("input", 0), p.message(r, peer)) for peer in p.after(r)]
        receives = [copy(p.message(peer, r), place("output", peer)) for peer in p.before(r)]
        return [[*sends, copy(place("input", 0), place("output", r))], receives]

    return p.plan("all_gather", groups)


def two_shot(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sources = [place("input", r) if peer == r else p.message(peer, r) for peer in range(ranks)]
        results = [copy(p.message(peer, r), place("output", peer)) for peer in p.before(r)]
        sends = [copy(place("input", peer), p.message(r, peer)) for peer in p.after(r)]
        return [[*sends, reduce(sources, place("output", r), *(p.message(r, peer) for peer in p.after(r))), *results]]

    return p.plan("all_reduce", groups, chunks=ranks)


def one_shot(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sources = [place("input", 0) if peer == r else p.message(peer, r) for peer in range(ranks)]
        sent = copy(place("input", 0), *(p.message(r, peer) for peer in p.after(r)))
        return [[sent, reduce(sources, place("output", 0))]]

    return p.plan("all_reduce", groups)


def ring(ranks: int, codec: str) -> str:
    """Rounds in every step, so only its sums of integers have the bits of the operation."""
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        to, source = p.message(r, (r + 1) % ranks), p.message((r - 1) % ranks, r)
        back = [(r - step) % ranks for step in range(2 * ranks)]
        steps = [copy(place("input", r), to)]
        steps += [reduce([source, place("input", back[step])], to) for step in range(1, ranks - 1)]
        steps += [reduce([source, place("input", back[ranks - 1])], place("output", back[ranks - 1]), to)]
        steps += [copy(source, place("output", back[step]), to) for step in range(ranks, 2 * ranks - 2)]
        return [[*steps, copy(source, place("output", back[2 * ranks - 2]))]]

    return p.plan("all_reduce", groups, chunks=ranks)


def two_groups(ranks: int, codec: str, *, barrier: bool) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        first, second = json.loads(one_shot(ranks, codec))["ranks"][r]["groups"][0]["steps"]
        second["to"] = [place("scratch", 0)]
        store = copy(place("scratch", 0), place("output", 0))
        wait = {"step": "barrier", "barrier": 0}
        if barrier:
            return [[first, second, wait], [wait, store]]
        return [[first, second], [{**store, "after": [[0, 1]]}]]

    rank = {"scratch_chunks": 1, **({"barriers": [[0, 1]]} if barrier else {})}
    return p.plan("all_reduce", groups, rank=rank)


def packets_in_scratch(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec, "memory")

    def groups(r: int) -> list[list[Step]]:
        puts = [place("scratch", r, channel=p.number[r, peer], packets=True) for peer in p.after(r)]
        sources = [place("input", 0) if q == r else place("scratch", q, packets=True) for q in range(ranks)]
        return [[copy(place("input", 0), *puts), reduce(sources, place("output", 0))]]

    return p.plan("all_reduce", groups, rank={"scratch_chunks": ranks}, scratch_copies=2)


def puts_in_scratch(ranks: int, codec: str) -> str:
    """Signals before the puts say that the scratch of the previous call has been read."""
    p = Pairs(ranks, codec, "memory")

    def groups(r: int) -> list[list[Step]]:
        to = {"channels": [p.number[r, peer] for peer in p.after(r)]}
        by = {"channels": [p.number[peer, r] for peer in p.after(r)]}
        puts = [copy(place("input", 0), place("scratch", r, channel=channel)) for channel in to["channels"]]
        sources = [place("input", 0) if q == r else place("scratch", q) for q in range(ranks)]
        return [
            [
                {"step": "signal", **to},
                {"step": "wait", **by},
                *puts,
                {"step": "signal", **to},
                {"step": "wait", **by},
                reduce(sources, place("output", 0)),
            ]
        ]

    return p.plan("all_reduce", groups, rank={"scratch_chunks": ranks})


def put_all_gather(ranks: int, codec: str) -> str:
    """Into the peers' output, which must be registered."""
    p = Pairs(ranks, codec, "memory")

    def groups(r: int) -> list[list[Step]]:
        to = {"channels": [p.number[r, peer] for peer in p.after(r)]}
        by = {"channels": [p.number[peer, r] for peer in p.after(r)]}
        puts = [copy(place("input", 0), place("output", r, channel=channel)) for channel in to["channels"]]
        return [
            [
                {"step": "signal", **to},
                {"step": "wait", **by},
                copy(place("input", 0), place("output", r)),
                *puts,
                {"step": "signal", **to},
                {"step": "wait", **by},
            ]
        ]

    return p.plan("all_gather", groups)


PLANS: dict[str, tuple[str, Callable[[int, str], str]]] = {
    "all_gather": ("all_gather", all_gather),
    "two_shot": ("all_reduce", two_shot),
    "one_shot": ("all_reduce", one_shot),
    "ring": ("all_reduce", ring),
    "after": ("all_reduce", lambda ranks, codec: two_groups(ranks, codec, barrier=False)),
    "barrier": ("all_reduce", lambda ranks, codec: two_groups(ranks, codec, barrier=True)),
    "packets_in_scratch": ("all_reduce", packets_in_scratch),
    "puts_in_scratch": ("all_reduce", puts_in_scratch),
    "put_all_gather": ("all_gather", put_all_gather),
}
MEASURED = ("two_shot", "one_shot", "all_gather")


def tested(ranks: int) -> Iterator[tuple[str, str, str, str]]:
    """Plan, codec, dtype, reduction."""
    for dtype in DTYPES if ranks == 2 else ("bfloat16", "float64", "int8"):
        for codec in ("raw", "window"):
            yield "two_shot", codec, dtype, "sum"
        yield "all_gather", "window", dtype, "sum"
        yield (
            "one_shot",
            "raw",
            dtype,
            {
                "int8": "max",
                "float16": "avg",
                "float64": "min",
                "int32": "avg",
                "bfloat16": "prod",
                "float8_e4m3": "avg",
            }.get(dtype, "sum"),
        )
    for name in ("after", "barrier", "packets_in_scratch", "puts_in_scratch", "put_all_gather"):
        yield name, "raw", "bfloat16", "sum"
    yield "after", "window", "bfloat16", "sum"
    for codec in ("raw", "window"):
        yield "ring", codec, "int32", "sum"
        yield "ring", codec, "bfloat16", "max"
        yield "all_gather", "raw", "bfloat16", "sum"


def compile_one(job: tuple[str, int, str, str, str]) -> tuple[str, float]:
    from narrowcast._native.plan import NativePlan
    from narrowcast.types import reduction_number, value_type

    name, ranks, codec, dtype, op = job
    text = PLANS[name][1](ranks, codec)
    report = NativePlan.read(text).compile(value_type(dtype).number, reduction_number(op), ARCHITECTURE)
    return " ".join(map(str, job)), json.loads(report)["seconds"]


def compile_all(ranks: list[int], *, test: bool) -> dict[str, float]:
    jobs = [(name, n, codec, "bfloat16", "sum") for n in ranks for name in MEASURED for codec in ("raw", "window")]
    if test:
        jobs += [(name, n, codec, dtype, op) for n in ranks for name, codec, dtype, op in tested(n)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(compile_one, dict.fromkeys(jobs)))


class Ranks:
    """Ranks on one GPU, with a thread each."""

    def __init__(self, ranks: int, timeout_seconds: float = 10) -> None:
        import narrowcast
        from narrowcast._native.cuda_driver import DeviceBuffer, Stream, call

        self.count = ranks
        self.comms = narrowcast.LocalRanks(ranks, backend="cuda", devices=[0] * ranks, timeout_seconds=timeout_seconds)
        self.streams = [Stream() for _ in range(ranks)]
        scratch = DeviceBuffer(4096)
        for stream in self.streams:  # the first kernel of a stream may wait for all others
            call("cuMemsetD8Async", c_uint64(scratch.pointer), c_ubyte(0), c_size_t(4096), c_void_p(stream.handle))
            stream.synchronize()
        self.pool = ThreadPoolExecutor(ranks)

    def together(self, work: Callable[[int], Any]) -> list[Any]:
        from narrowcast._native.cuda_driver import on_device

        def on_gpu(rank: int) -> Any:
            with on_device(0):
                return work(rank)

        return list(self.pool.map(on_gpu, range(self.count)))

    def load(self, name: str, codec: str, dtype: str, op: str) -> list[Any]:
        text = PLANS[name][1](self.count, codec)
        return self.together(lambda rank: self.comms[rank].load_plan(text, dtype, op=op))

    def close_plans(self, plans: list[Any]) -> None:
        self.together(lambda rank: plans[rank].close())

    def register(self, buffers: list[Any]) -> list[Any]:
        """Registrations, which the communicators close."""
        return self.together(lambda rank: self.comms[rank].register(buffers[rank]))

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def close(self) -> None:
        self.pool.shutdown()
        self.comms.close()


def random_values(dtype: str, count: int, seed: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(seed)
    if dtype in ("float16", "float32", "float64"):
        return rng.standard_normal(count).astype(dtype).view(np.uint8)
    if dtype == "bfloat16":
        return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    size = {"int8": 1, "uint8": 1, "float8_e4m3": 1, "float8_e5m2": 1}.get(dtype, 4 if "32" in dtype else 8)
    return rng.integers(0, 120 if size == 1 else 256, count * size, dtype=np.uint8)


MAX_TEST_BYTES = 6 * MIB


class Tests:
    """Runs plans, and compares their results with those of the operations."""

    def __init__(self, ranks: int) -> None:
        from narrowcast._native.cuda_driver import DeviceBuffer

        self.ranks = ranks
        self.inputs, self.expected, self.outputs = (
            [DeviceBuffer(MAX_TEST_BYTES) for _ in range(ranks)] for _ in range(3)
        )
        self.start()

    def start(self) -> None:
        self.group = Ranks(self.ranks, 4)
        self.group.register(self.inputs)
        self.group.register(self.outputs)

    def check(self, name: str, codec: str, dtype: str, op: str) -> Iterator[str]:
        """Yields the cases, and after each an error or nothing."""
        size = len(random_values(dtype, 1, 0))
        plans = self.group.load(name, codec, dtype, op)
        for count, shift, mode in (
            (1, 0, "out"),
            (1000, 0, "out"),
            (4096 // size * 24, 0, "in"),
            (70_001, 0, "out"),
            (70_001, size, "in"),
            (300_000 // size, 0, "graph"),
            (1_000_003 // size, size, "out"),
        ):
            yield f"{self.ranks} ranks, {name} {codec} {dtype} {op}, {count} values, shift {shift}, {mode}"
            yield self.run(plans, PLANS[name][0], dtype, op, (count, size, shift, mode))
        self.group.close_plans(plans)

    def run(self, plans: list[Any], operation: str, dtype: str, op: str, case: tuple[int, int, int, str]) -> str:
        from narrowcast._native.cuda_driver import call

        count, size, shift, mode = case
        group, gathers = self.group, operation == "all_gather"
        piece, whole = count * size, count * size * (self.ranks if gathers else 1)
        sources, results, wanted = [], [], []
        for rank in range(self.ranks):
            values = random_values(dtype, count, 1000 * count + rank)
            self.outputs[rank].fill(0xEE)
            wanted.append(self.expected[rank].part(0, whole))
            results.append(self.outputs[rank].part(shift, whole))
            self.inputs[rank].part(0, piece).write(values)
        call("cuCtxSynchronize")  # copies from pageable memory may return early, and the streams do not wait for them
        for rank in range(self.ranks):
            options: dict[str, Any] = {} if gathers else {"op": op}
            run = getattr(group.comms[rank], operation)
            own = self.inputs[rank].part(0, piece)
            run(own, wanted[rank], dtype=dtype, codec="raw", stream=group.streams[rank], **options)
            if mode == "in":
                sources.append(results[rank].part(rank * piece, piece) if gathers else results[rank])
        group.synchronize()
        for rank in range(self.ranks):
            values = random_values(dtype, count, 1000 * count + rank)
            if mode != "in":
                sources.append(self.inputs[rank].part(shift, piece))
            sources[rank].write(values)
        call("cuCtxSynchronize")
        calls = [(plans[r], sources[r], results[r], group.streams[r]) for r in range(self.ranks)]
        if mode == "graph":
            graphs = []
            for plan, source, result, stream in calls:
                with stream.capture() as graph:
                    for _ in range(3):
                        plan(source, result, stream=stream, dtype=dtype)
                graphs.append(graph)
            for _ in range(5):
                for graph, stream in zip(graphs, group.streams, strict=True):
                    graph.launch(stream)
        else:
            for plan, source, result, stream in calls:
                plan(source, result, stream=stream, dtype=dtype)
        group.synchronize()
        for rank in range(self.ranks):
            if error := group.comms[rank].async_error():
                raise error
        errors = [difference(r, results[r].read(), wanted[r].read(), size) for r in range(self.ranks)]
        return "; ".join(filter(None, errors))


def difference(rank: int, result: Any, wanted: Any, size: int) -> str:
    differing = (result != wanted).reshape(-1, size).any(axis=1).nonzero()[0]
    if not differing.size:
        return ""
    first, last = differing[0], differing[-1]
    at = slice(first * size, (first + 1) * size)
    return (
        f"rank {rank}: {differing.size} values differ, from {first} to {last}; the first is "
        f"{result[at].tobytes().hex()} and not {wanted[at].tobytes().hex()}"
    )


def test_some(ranks: int, skipped: int) -> None:
    """Prints a line of JSON for each kind of plan. Ends after an exception, which may have damaged the context."""
    tests = Tests(ranks)
    for settings in list(dict.fromkeys(tested(ranks)))[skipped:]:
        failures, checked, case = [], 0, " ".join(settings)
        begin = time.monotonic()
        try:
            results = tests.check(*settings)
            for case in results:
                error = next(results)
                checked += 1
                if error:
                    failures.append(f"{case}: {error}")
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
            print(json.dumps({"cases": checked, "failures": failures}), flush=True)
            os._exit(1)  # without waiting for kernels
        print(json.dumps({"cases": checked, "failures": failures}), flush=True)
        print(f"{' '.join(settings)}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


def test(ranks: int) -> dict[str, Any]:
    kinds = len(dict.fromkeys(tested(ranks)))
    found: list[dict[str, Any]] = []
    for _ in range(MAX_RESTARTS):
        done = in_process("--test-some", ranks, "--skip", str(len(found)))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        if not lines:
            lines = [{"cases": 0, "failures": [f"kind {len(found)}: the process ended with {done.returncode}"]}]
        for line in lines:
            for failure in line["failures"]:
                print(failure, file=sys.stderr, flush=True)
        found += lines
        if len(found) == kinds:
            break
    failures = [failure for line in found for failure in line["failures"]]
    done = in_process("--test-abort", ranks)
    failures += json.loads(done.stdout) if done.returncode == 0 else [f"the test of abort ended with {done.returncode}"]
    return {"ranks": ranks, "kinds": len(found), "cases": sum(line["cases"] for line in found), "failures": failures}


def test_abort(ranks: int) -> list[str]:
    """Ranks that wait in a generated kernel end when another one aborts."""
    import narrowcast
    from narrowcast._native.cuda_driver import DeviceBuffer

    failures = []
    for count in (1000, 1_000_000):
        group = Ranks(ranks, 60)
        plans = group.load("two_shot", "raw", "bfloat16", "sum")
        buffers = [DeviceBuffer(2 * count).fill(0) for _ in range(ranks)]
        for rank in range(1, ranks):
            plans[rank](buffers[rank], buffers[rank], stream=group.streams[rank], dtype="bfloat16")
        begin = time.monotonic()
        group.comms[0].abort()
        group.synchronize()
        if time.monotonic() - begin > 5:
            failures.append(f"abort of {count} values took {time.monotonic() - begin:.1f} s")
        try:
            plans[1](buffers[1], buffers[1], stream=group.streams[1], dtype="bfloat16")
            failures.append("a call after an abort did not fail")
        except narrowcast.NarrowcastError:
            pass
        group.close()
    return failures


def measure(ranks: int) -> dict[str, Any]:
    from narrowcast._bench import samples
    from narrowcast._native.cuda_driver import DeviceBuffer, Event

    found: dict[str, dict[str, dict[str, float]]] = {}
    group = Ranks(ranks)
    values = samples.sample("weights", "bfloat16").view("uint8")
    most = SIZES[-1]
    sent = [DeviceBuffer(most).write_tiled(values) for _ in range(ranks)]
    received = [DeviceBuffer(most) for _ in range(ranks)]

    def time_of(call: Callable[[int], None]) -> float:
        graphs = []
        for rank in range(ranks):
            call(rank)
        group.synchronize()
        for rank, stream in enumerate(group.streams):
            with stream.capture() as graph:
                for _ in range(CALLS):
                    call(rank)
            graphs.append(graph)
        slowest = []
        for _ in range(REPLAYS):
            events = [(Event(), Event()) for _ in graphs]
            for graph, stream, (begin, end) in zip(graphs, group.streams, events, strict=True):
                graph.launch(stream)
                begin.record(stream)
                graph.launch(stream)
                end.record(stream)
            group.synchronize()
            slowest.append(max(end.seconds_since(begin) for begin, end in events))
        for graph in graphs:
            graph.close()
        return min(slowest) / CALLS * 1e6

    def call_of(operation: str, codec: str, whole: int, plans: list[Any] | None) -> Callable[[int], None]:
        part = whole // ranks if operation == "all_gather" else whole

        def call(rank: int) -> None:
            source, target = sent[rank].part(0, part), received[rank].part(0, whole)
            if plans is None:
                run = getattr(group.comms[rank], operation)
                run(source, target, codec=codec, dtype="bfloat16", stream=group.streams[rank])
            else:
                plans[rank](source, target, dtype="bfloat16", stream=group.streams[rank])

        return call

    for name, codec in itertools.product(MEASURED, ("raw", "window")):
        operation = PLANS[name][0]
        begin = time.monotonic()
        plans = group.load(name, codec, "bfloat16", "sum")
        loading = time.monotonic() - begin
        row = found.setdefault(f"{name} {codec}", {"load": {"milliseconds": round(loading * 1e3, 1)}})
        for whole in SIZES:
            if name == "one_shot" and whole > MIB:
                continue
            builtin = call_of(operation, codec, whole, None)
            generated = call_of(operation, codec, whole, plans)
            times: dict[str, list[float]] = {"builtin": [], "generated": []}
            for _ in range(TURNS):
                times["builtin"].append(time_of(builtin))
                times["generated"].append(time_of(generated))
            row[str(whole)] = {kind: round(min(of_kind), 2) for kind, of_kind in times.items()}
            print(name, codec, whole, row[str(whole)], file=sys.stderr, flush=True)
        group.close_plans(plans)
    group.close()
    return {"ranks": ranks, "microseconds": found}


def in_process(option: str, ranks: int, *more: str) -> subprocess.CompletedProcess[str]:
    own = {
        "NARROWCAST_MAX_CTAS": str(SMS // ranks),  # the kernels of all ranks run concurrently
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "CUDA_MODULE_LOADING": "EAGER",
    }
    command = [sys.executable, __file__, option, str(ranks), *more]
    return subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, text=True, timeout=280, check=False)


def measured(ranks: int) -> Any:
    done = in_process("--measure-ranks", ranks)
    return json.loads(done.stdout) if done.returncode == 0 else {"ranks": ranks, "exit status": done.returncode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--measure", action="store_true")
    for option in ("--test-some", "--test-abort", "--measure-ranks", "--skip"):
        parser.add_argument(option, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    works: list[tuple[Callable[[int], None], int | None]] = [
        (lambda ranks: test_some(ranks, options.skip), options.test_some),
        (lambda ranks: print(json.dumps(test_abort(ranks))), options.test_abort),
        (lambda ranks: print(json.dumps(measure(ranks))), options.measure_ranks),
    ]
    for work, ranks in works:
        if ranks:
            from narrowcast._native.cuda_driver import on_device

            with on_device(0):
                work(ranks)
            return
    counts = options.ranks or [2, 4]
    result: dict[str, Any] = {"machine": machine()[0], "command": " ".join(["tools/gpu/plans.py", *sys.argv[1:]])}
    result["compile_seconds"] = compile_all(counts, test=options.test)
    if options.test:
        result["tests"] = [test(n) for n in counts]
    if options.measure:
        result["runs"] = [measured(n) for n in counts]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
