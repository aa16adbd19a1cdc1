"""`bench all_reduce` and the like: what is asked for, the ranks that measure it, rows and report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _operations, _samples
from .._launch import run_ranks
from .._nccl import COPY_ENGINE, VARIANTS
from ..comm import unique_id
from ..cuda import device_count
from ..errors import InternalError, UnsupportedError
from ..types import COMM_CODECS, REDUCTIONS, ValueType, value_type
from . import bench_report
from ._common import BadUse, comm_codec_name, print_json, write_json

_TIMEOUT_SECONDS = 60.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_BACKENDS = ("host", "cuda")
# Processes of one machine without GPUs.
_HOST_RANKS = 4


def parse_size(text: str) -> int:
    """nccl-tests' sizes: 64, 1K, 64M, 1G (powers of 1024)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadUse(f"{text!r} is not a size: give one such as 64, 1K, 64M or 1G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def sizes(begin: int, end: int, factor: float) -> Iterator[int]:
    """From begin to end, times the factor."""
    size = begin
    while size <= end:
        yield size
        size = max(size + 1, int(size * factor))


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")]
OutputOption = Annotated[
    Path | None, typer.Option("-J", "--output-file", metavar="FILE", help="Write the JSON to a file as well.")
]


def collective(operation: str) -> Callable[..., None]:
    """The command that measures an operation."""

    def run(
        context: typer.Context,
        begin: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="First size.")] = "64K",
        end: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Last size.")] = "16M",
        factor: Annotated[float, typer.Option("-f", "--stepfactor", help="From one size to the next.")] = 4,
        iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Calls that are timed together.")] = 20,
        warmup: Annotated[int, typer.Option("-w", "--warmup-iters", "--warmup_iters", min=0)] = 5,
        batches: Annotated[
            int | None,
            typer.Option(
                min=1, help="How often they are; the time is the median. By default 20 on GPUs, 1 on the host."
            ),
        ] = None,
        check: Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="Compare results with NumPy's.")] = 1,
        datatype: Annotated[str, typer.Option("-d", "--datatype", help="Value type.")] = "bfloat16",
        op: Annotated[str, typer.Option("-o", "--op", help="Reduction.")] = "sum",
        root: Annotated[int, typer.Option("-r", "--root", min=0, help="Of operations that have one.")] = 0,
        graph: Annotated[
            int,
            typer.Option(
                "-G",
                "--cudagraph",
                min=0,
                metavar="N",
                help="cuda: calls captured into one graph, which is replayed; 0: launched one by one.",
            ),
        ] = 0,
        pattern: Annotated[str, typer.Option(help="sendrecv: ring, or one-way, from rank 0 to rank 1 only.")] = "ring",
        in_place: Annotated[
            bool,
            typer.Option(
                "--in-place", help="Output over input. Values that reductions wrote over are restored before a batch."
            ),
        ] = False,
        ranks: Annotated[
            int | None, typer.Option(min=1, max=64, help="By default all GPUs, or 4 processes on the host.")
        ] = None,
        codec: Annotated[
            list[str] | None,
            typer.Option(
                help=f"{', '.join(COMM_CODECS)}; several: A,B, or repeated. By default auto on GPUs, else window."
            ),
        ] = None,
        data: Annotated[
            str, typer.Option(help=f"What the buffers hold: {', '.join(_samples.NAMES)}, or a file.")
        ] = "weights",
        backend: Annotated[
            str | None,
            typer.Option(
                help="cuda: a process a GPU; host: processes of this machine. By default cuda from 2 GPUs on."
            ),
        ] = None,
        against: Annotated[
            list[str] | None,
            typer.Option(
                help=f"cuda: {', '.join(VARIANTS)} (copy engines) or none; several: A,B, or repeated. By default all "
                "that are there."
            ),
        ] = None,
        nccl: Annotated[
            Path | None,
            typer.Option(metavar="PATH", help="NCCL's library. By default the pip wheel's, or libnccl.so.2."),
        ] = None,
        register: Annotated[
            int,
            typer.Option(
                "-R",
                "--local_register",
                min=0,
                max=1,
                help="cuda: 1: Narrowcast's buffers are registered: what travels as it is is written where it ends up.",
            ),
        ] = 0,
        ctas: Annotated[
            int, typer.Option(min=0, help="cuda: at most this many CTAs, for Narrowcast and NCCL alike; 0: no limit.")
        ] = 0,
        json: JsonOption = False,
        output_file: OutputOption = None,
        plot: Annotated[
            Path | None, typer.Option(metavar="OUT.png", help="Draw speed-up and bus bandwidth against size.")
        ] = None,
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
        if factor <= 1:
            raise BadUse(f"-f is {factor}: the sizes have to grow")
        if op not in REDUCTIONS:
            raise BadUse(f"{op!r} is not a reduction (known: {', '.join(REDUCTIONS)})")
        if pattern not in _operations.PATTERNS:
            raise BadUse(f"{pattern!r} is not a pattern (known: {', '.join(_operations.PATTERNS)})")
        if pattern != "ring" and operation != "sendrecv":
            raise BadUse("--pattern is for sendrecv")
        if in_place and operation in _operations.NOT_IN_PLACE:
            raise BadUse(f"{operation} does not work in place")
        try:
            kind = value_type(datatype)
            _samples.sample(data, kind.name)
        except ValueError as error:
            raise BadUse(str(error)) from None
        codecs = [comm_codec_name(name) for name in _listed(codec)] or ["auto" if is_cuda else "window"]
        opponents = _opponents(operation, _listed(against), is_cuda)
        if plot is not None:
            _check_plot(plot)
        ranks = _ranks(ranks, is_cuda)
        if root >= ranks:
            raise BadUse(f"the root {root} is not one of {ranks} ranks")
        if pattern == "one-way" and ranks < 2:
            raise BadUse("--pattern one-way takes 2 ranks")
        first, last = parse_size(begin), parse_size(end)
        if not 0 < first <= last:
            raise BadUse(f"the sizes from {begin} to {end} are none")
        settings: dict[str, Any] = {
            "operation": operation,
            "dtype": kind.name,
            "data": data,
            "codecs": codecs,
            "op": op,
            "root": root,
            "pattern": pattern,
            "in_place": in_place,
            "iterations": iterations,
            "warmup": warmup,
            "batches": batches or (20 if is_cuda else 1),
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
        counts = list(
            dict.fromkeys(_operations.count_of(operation, size, kind, ranks) for size in sizes(first, last, factor))
        )
        report = measure(
            settings, kind, counts, ranks, check=bool(check), command=bench_report.command_line(context), quiet=json
        )
        if json:
            print_json(report)
        if output_file is not None:
            write_json(report, output_file)
        if plot is not None:
            from ..plots import plot_bench

            plot_bench([report], plot)
        wrong = sum(row["wrong"] or 0 for row in report["rows"])
        if wrong:
            raise InternalError(f"{wrong} values of {operation} are wrong")

    run.__doc__ = f"Time {operation} over sizes, between GPUs and against NCCL, or between processes of this machine."
    return run


def _listed(given: list[str] | None) -> list[str]:
    """Of an option that may be repeated and takes several at once, each one once."""
    names = [name.strip() for text in given or [] for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def _opponents(operation: str, asked: list[str], is_cuda: bool) -> list[str]:
    if not is_cuda or asked == ["none"]:
        return []
    for name in asked:
        if name not in VARIANTS:
            raise BadUse(f"{name!r} is nothing to measure against (known: {', '.join(VARIANTS)}, none)")
    # NCCL has copy engines do a few operations; others would only be measured twice.
    return asked or [name for name in VARIANTS if name != "nccl-ce" or operation in COPY_ENGINE]


def _ranks(asked: int | None, is_cuda: bool) -> int:
    if not is_cuda:
        return asked or _HOST_RANKS
    here = device_count()
    if here == 0:
        raise UnsupportedError("--backend cuda needs CUDA GPUs, and none is here")
    if asked is not None and asked > here:
        raise UnsupportedError(f"--backend cuda takes a GPU a rank: {asked} ranks are asked for, {here} GPUs are here")
    return asked or here


def _check_plot(path: Path) -> None:
    from .. import plots

    # Before the work, not after it.
    plots.require()
    if path.suffix not in plots.FORMATS:
        raise BadUse(f"{path} has none of the suffixes {', '.join(plots.FORMATS)}")


def measure(
    settings: dict[str, Any],
    kind: ValueType,
    counts: list[int],
    ranks: int,
    *,
    check: bool,
    command: str,
    quiet: bool,
    job: str | None = None,
) -> dict[str, Any]:
    """Runs the ranks, prints the table as it grows, unless quiet, and returns the report.

    job: what ranks run in place of the backend's own, for tests.
    """
    is_cuda = "against" in settings
    arguments = {
        **settings,
        # Made here: this process lives as long as the ranks.
        "unique_id": unique_id().hex(),
        "ranks": ranks,
        "counts": counts,
        "check": check,
        "timeout_seconds": _TIMEOUT_SECONDS,
    }
    if is_cuda:
        arguments["host_id"] = unique_id().hex()
    report: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []

    def add(results: list[dict[str, Any]]) -> None:
        if not report:
            report.update(bench_report.heading(settings, "cuda" if is_cuda else "host", ranks, command, results))
            if not quiet:
                print(bench_report.preamble(report), flush=True)
            return
        new = bench_report.rows_of(settings, kind, ranks, results)
        rows.extend(new)
        if not quiet:
            print(bench_report.line(new), flush=True)

    turns = len(settings["codecs"]) + len(settings.get("against", []))
    calls = settings["warmup"] + settings["iterations"] * settings["batches"] + 2
    run_ranks(
        job or ("narrowcast._cuda_bench:bench" if is_cuda else "narrowcast._rank_jobs:bench"),
        [{**arguments, "rank": rank} for rank in range(ranks)],
        add,
        # A call of the host backend may take that long; GPUs take less, and have more to set up.
        timeout_seconds=_TIMEOUT_SECONDS * (turns * len(counts) + 5 if is_cuda else turns * calls * len(counts)),
    )
    report["rows"] = rows
    if not quiet:
        print(bench_report.closing(rows), flush=True)
    return report
