"""`bench OPERATION`: runs the ranks, and collects rows into a report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from ..._bench import launched, operations
from ..._files.display import printable_lines
from ...errors import InternalError
from ...types import ValueType
from .._common import print_json, write_json
from .._provenance import command_line
from .._tables import terminal_width
from . import checks, options
from . import report as bench_report

# Time limit of all ranks if calls have none.
_UNLIMITED_SECONDS = 1e7
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
        hosts: options.Hosts = 1,
        threads: options.Threads = 1,
        gpus: options.Gpus = 1,
        parallel_init: options.ParallelInit = 1,
        json: options.Json = False,
        output_file: options.OutputFile = None,
        plot: options.Plot = None,
    ) -> None:
        if launched.ran_for_rank_0():
            return
        gpu_options = {
            "--cudagraph": graph,
            "--against": against,
            "--nccl": nccl,
            "--ctas": ctas,
            "-R": register,
            "--hosts": hosts > 1,
        }
        is_cuda = checks.is_cuda(backend, gpu_options)
        checks.reject_other_processes(threads, gpus, parallel_init)
        checks.check_growth(step, factor)
        ops = checks.reductions(operation, op)
        checks.check_call(operation, pattern, in_place)
        data, kinds = checks.value_types(datatype, data)
        codecs = checks.listed_codecs(codec) or ["auto"]
        opponents = checks.opponents(operation, checks.listed(against), is_cuda, windows=register == _WINDOWS)
        checks.check_outputs(output_file, plot, len(kinds) * len(ops))
        ranks = checks.rank_count(ranks, is_cuda, hosts)
        checks.check_ranks(ranks, root, pattern)
        every_size = checks.every_size(begin, end, step, factor)
        settings: dict[str, Any] = {
            "operation": operation,
            "dtype": kinds[0].name if datatype != checks.ALL else checks.ALL,
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
                "hosts": hosts,
            }
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

            plot_bench(report, plot)
        wrong = sum(row["wrong"] or 0 for row in report["rows"])
        if wrong:
            raise InternalError(f"{wrong} values of {operation} are wrong")

    run.__doc__ = (
        f"Measure {operation} for a range of sizes, between GPUs and compared with NCCL, or between processes."
    )
    return run


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
        "unique_id": launched.unique_id().hex(),
        "ranks": ranks,
        "check": check,
        "timeout_seconds": timeout_seconds,
    }
    if is_cuda:
        arguments["host_id"] = launched.unique_id().hex()
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
    launched.run_ranks(
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
