"""`bench OPERATION`: checks options, runs the ranks, and collects rows into a report."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from ..._bench import operations, samples
from ..._bench.launch import run_ranks
from ..._bench.nccl_library import COPY_ENGINE, VARIANTS
from ..._files.atomic import check_writable
from ..._files.display import printable_lines
from ..._native.codecs import split_codecs
from ...comm import unique_id
from ...cuda import device_count
from ...errors import InternalError, UnsupportedError
from ...types import REDUCTIONS, VALUE_TYPES, ValueType, value_type
from .._common import BadUse, comm_codec_name, print_json, write_json
from .._provenance import command_line
from .._sizes import parse_size, sizes
from .._tables import terminal_width
from . import options
from . import report as bench_report

# Time limit of all ranks if calls have none.
_UNLIMITED_SECONDS = 1e7
_BACKENDS = ("host", "cuda")
# Default number of processes on the host.
_HOST_RANKS = 4
_FACTOR = 4.0
_ALL = "all"
# Settings that the ranks do not need.
_REPORT_ONLY = frozenset({"dtype", "op", "average", "report_cputime"})
# Time limit for setting up the ranks.
_START_SECONDS = 300.0
# The value of -R for symmetric windows only.
_WINDOWS = 2


class Block(NamedTuple):
    """Measurements with one value type and reduction."""

    kind: ValueType
    op: str
    counts: list[int]


class CollectiveCommand(TyperCommand):
    """Treats `--json FILE` as `--output-file FILE`, and `--json` without a file as a flag."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word == "--json" and rest and not rest[0].startswith("-"):
                word = f"--json={rest.pop(0)}"
            option, equals, file = word.partition("=")
            given += ["--output-file", file] if option == "--json" and equals else [word]
        return super().parse_args(ctx, given)


def collective(operation: str) -> Callable[..., None]:
    """The command that measures an operation."""

    def run(
        context: typer.Context,
        begin: options.Begin = "64K",
        end: options.End = "16M",
        step: options.Step = None,
        factor: options.Factor = None,
        iterations: options.Iterations = 20,
        group_calls: options.GroupCalls = 1,
        warmup: options.Warmup = 5,
        batches: options.Batches = None,
        average: options.Average = bench_report.SLOWEST,
        check: options.Check = 1,
        datatype: options.Datatype = "bfloat16",
        op: options.Op = "sum",
        root: options.Root = 0,
        blocking: options.Blocking = None,
        graph: options.CudaGraph = 0,
        cpu_time: options.CpuTime = 0,
        timeout_seconds: options.Timeout = 60,
        pattern: options.Pattern = "ring",
        in_place: options.InPlace = False,
        ranks: options.Ranks = None,
        codec: options.Codec = None,
        data: options.Data = None,
        backend: options.Backend = None,
        against: options.Against = None,
        nccl: options.Nccl = None,
        register: options.Register = 0,
        ctas: options.Ctas = 0,
        threads: options.Threads = 1,
        gpus: options.Gpus = 1,
        parallel_init: options.ParallelInit = 1,
        json: options.Json = False,
        output_file: options.OutputFile = None,
        plot: options.Plot = None,
    ) -> None:
        if backend is None:
            backend = "cuda" if device_count() >= 2 else "host"
        if backend not in _BACKENDS:
            raise BadUse(f"{backend!r} is not a backend (known: {', '.join(_BACKENDS)})")
        is_cuda = backend == "cuda"
        for option, given in (
            ("--cudagraph", graph),
            ("--against", against),
            ("--nccl", nccl),
            ("--ctas", ctas),
            ("-R", register),
        ):
            if given and not is_cuda:
                raise BadUse(f"{option} is for --backend cuda")
        _reject_other_processes(threads, gpus, parallel_init)
        if step is not None and factor not in (None, 1):
            raise BadUse("-i adds to the size and -f multiplies it: use only one of them")
        # With 1, inf or nan there would be no end.
        if step is None and factor is not None and not 1 < factor < math.inf:
            raise BadUse(f"-f is {factor}: it must be a number greater than 1")
        if op not in (*REDUCTIONS, _ALL):
            raise BadUse(f"{op!r} is not a reduction (known: {', '.join(REDUCTIONS)}, {_ALL})")
        if pattern not in operations.PATTERNS:
            raise BadUse(f"{pattern!r} is not a pattern (known: {', '.join(operations.PATTERNS)})")
        if pattern != "ring" and operation != "sendrecv":
            raise BadUse("--pattern is for sendrecv")
        if in_place and not operations.describe(operation).in_place:
            raise BadUse(f"{operation} does not work in place")
        if data is None:
            # The packaged tensors do not have all types.
            data = "normal" if datatype == _ALL else "weights"
        try:
            kinds = list(VALUE_TYPES) if datatype == _ALL else [value_type(datatype)]
            for kind in kinds:
                samples.sample(data, kind.name)
        except ValueError as error:
            raise BadUse(str(error)) from None
        reduces = operations.describe(operation).reduces
        ops = list(REDUCTIONS) if op == _ALL and reduces else ["sum" if op == _ALL else op]
        codecs = [comm_codec_name(name) for name in _listed_codecs(codec)] or ["auto"]
        opponents = _opponents(operation, _listed(against), is_cuda, windows=register == _WINDOWS)
        if plot is not None:
            if len(kinds) * len(ops) > 1:
                raise BadUse(f"--plot needs one value type and one reduction, not {_ALL}")
            _check_plot(plot)
        for path in (output_file, plot):
            if path is not None:
                # Fails before the work, not after it.
                check_writable(path)
        ranks = _ranks(ranks, is_cuda)
        if root >= ranks:
            raise BadUse(f"--root {root} is not one of {ranks} ranks")
        if pattern == "one-way" and ranks < 2:
            raise BadUse("--pattern one-way needs at least 2 ranks")
        first, last = parse_size(begin), parse_size(end)
        if not 0 < first <= last:
            raise BadUse(f"there are no sizes from {begin} to {end}")
        step_bytes = None if step is None else parse_size(step)
        if step_bytes == 0:
            raise BadUse(f"-i is {step}: it must be greater than 0")
        settings: dict[str, Any] = {
            "operation": operation,
            "dtype": kinds[0].name if datatype != _ALL else _ALL,
            "data": data,
            "codecs": codecs,
            "op": op,
            "root": root,
            "pattern": pattern,
            "in_place": in_place,
            "iterations": iterations,
            "group_calls": group_calls,
            "warmup": warmup,
            "batches": batches or (20 if is_cuda else 1),
            "blocking": not is_cuda if blocking is None else bool(blocking),
            "average": average,
            "report_cputime": bool(cpu_time),
        }
        if is_cuda:
            settings |= {
                "graph_calls": graph,
                "against": opponents,
                "required": bool(against),
                "nccl": None if nccl is None else str(nccl),
                "ctas": ctas,
                "register": bool(register),
            }
        every_size = list(sizes(first, last, factor or _FACTOR, step_bytes))
        blocks = [
            Block(
                kind,
                one,
                list(dict.fromkeys(operations.count_of(operation, size, kind, ranks) for size in every_size)),
            )
            for kind in kinds
            for one in ops
        ]
        report = measure(
            settings,
            blocks,
            ranks,
            check=bool(check),
            command=command_line(context),
            quiet=json,
            timeout_seconds=timeout_seconds,
        )
        if json:
            print_json(report)
        if output_file is not None:
            write_json(report, output_file)
        if plot is not None:
            from ...plots import plot_bench

            plot_bench([report], plot)
        wrong = sum(row["wrong"] or 0 for row in report["rows"])
        if wrong:
            raise InternalError(f"{wrong} values of {operation} are wrong")

    run.__doc__ = (
        f"Measure {operation} for a range of sizes, between GPUs and compared with NCCL, or between processes."
    )
    return run


def _reject_other_processes(threads: int, gpus: int, parallel_init: int) -> None:
    """Several ranks in one process are not supported: they would measure Python's global lock."""
    if (threads, gpus) != (1, 1):
        given = [f"{option} {value}" for option, value in (("-t", threads), ("-g", gpus)) if value != 1]
        raise BadUse(
            f"every rank is a process with at most one GPU: use --ranks {threads * gpus} instead of {' '.join(given)}"
        )
    if not parallel_init:
        raise BadUse("-p 0 is not supported: ranks are processes and always join in parallel")


def _listed_codecs(given: list[str] | None) -> list[str]:
    return list(dict.fromkeys(name for text in given or [] for name in split_codecs(text)))


def _listed(given: list[str] | None) -> list[str]:
    """The distinct values of an option that may be repeated and takes lists."""
    names = [name.strip() for text in given or [] for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def _opponents(operation: str, requested: list[str], is_cuda: bool, *, windows: bool) -> list[str]:
    """The variants of NCCL to measure. windows: by default only those with symmetric windows."""
    if not is_cuda or requested == ["none"]:
        return []
    for name in requested:
        if name not in VARIANTS:
            raise BadUse(f"{name!r} is not a variant of NCCL (known: {', '.join(VARIANTS)}, none)")
    # NCCL uses copy engines for a few operations. Others would be measured twice.
    own = [name for name in VARIANTS if name != "nccl-ce" or operation in COPY_ENGINE]
    return requested or [name for name in own if not windows or name != "nccl"]


def _ranks(requested: int | None, is_cuda: bool) -> int:
    if not is_cuda:
        return requested or _HOST_RANKS
    gpus = device_count()
    if gpus == 0:
        raise UnsupportedError("--backend cuda needs CUDA GPUs, but none was found")
    if requested is not None and requested > gpus:
        raise UnsupportedError(
            f"--backend cuda needs one GPU per rank: {requested} ranks were requested, {gpus} GPUs were found"
        )
    return requested or gpus


def _check_plot(path: Path) -> None:
    from ... import plots

    # Fails before the work, not after it.
    plots.require()
    if path.suffix not in plots.FORMATS:
        raise BadUse(f"{path} must end in one of {', '.join(plots.FORMATS)}")


def measure(
    settings: dict[str, Any],
    blocks: list[Block],
    ranks: int,
    *,
    check: bool,
    command: str,
    quiet: bool,
    timeout_seconds: float = 60,
    job: str | None = None,
) -> dict[str, Any]:
    """Runs the ranks and returns the report. Prints rows as they arrive, unless quiet.

    timeout_seconds: how long a call waits for other ranks; 0: no limit.
    job: the function that ranks run instead of the default, for tests.
    """
    is_cuda = "against" in settings
    arguments = {
        **{name: value for name, value in settings.items() if name not in _REPORT_ONLY},
        "blocks": [(block.kind.name, block.op, block.counts) for block in blocks],
        # Created here, because this process lives as long as the ranks.
        "unique_id": unique_id().hex(),
        "ranks": ranks,
        "check": check,
        "timeout_seconds": timeout_seconds,
    }
    if is_cuda:
        arguments["host_id"] = unique_id().hex()
    report: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    # Programs that parse the output get all columns of nccl-tests.
    width = terminal_width(sys.stdout) if sys.stdout.isatty() else None
    # Every result of the ranks is for the next count.
    turns = (block for block in blocks for _ in block.counts)

    def add(results: list[dict[str, Any]]) -> None:
        if not report:
            report.update(bench_report.heading(settings, "cuda" if is_cuda else "host", ranks, command, results))
            if not quiet:
                print(printable_lines(bench_report.preamble(report, width)), flush=True)
            return
        block = next(turns)
        new = bench_report.rows_of({**settings, "op": block.op}, block.kind, ranks, results)
        rows.extend(new)
        if not quiet:
            print(bench_report.line(new, cpu_time=settings["report_cputime"], width=width), flush=True)

    counts = sum(len(block.counts) for block in blocks)
    contenders = len(settings["codecs"]) + len(settings.get("against", []))
    calls = settings["warmup"] + settings["iterations"] * settings["group_calls"] * settings["batches"] + 2
    run_ranks(
        job or ("narrowcast._bench.cuda_ranks:bench" if is_cuda else "narrowcast._bench.host_ranks:bench"),
        [{**arguments, "rank": rank} for rank in range(ranks)],
        add,
        # On the host backend every call may take that long. On GPUs calls take less, and the set-up more.
        timeout_seconds=min(
            _UNLIMITED_SECONDS,
            (timeout_seconds or _UNLIMITED_SECONDS) * contenders * counts * (1 if is_cuda else calls) + _START_SECONDS,
        ),
    )
    report["rows"] = rows
    if not quiet:
        print(bench_report.closing(rows), flush=True)
    return report
