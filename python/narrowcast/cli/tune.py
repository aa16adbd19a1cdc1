"""`tune`: measures this machine's ways of every operation, and writes the cost model by which they are chosen."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from .._bench.cost_model import INCOMPRESSIBLE, UNKNOWN_KERNELS, ContradictionError, Curve, Times, load, series_of_nccl
from .._bench.launch import run_ranks
from .._bench.operations import NAMES as OPERATIONS
from .._bench.operations import call_of
from .._bench.tune_ranks import DTYPE
from .._comm.explain import Explanation, changes, explain
from .._files.atomic import check_writable, new_file, write_all
from .._native.library import library
from ..comm import unique_id
from ..cuda import device_count
from ..errors import InvalidArgumentError, UnsupportedError
from ..types import value_type
from ._common import BadUse, bytes_text, console
from .bench import report as bench_report
from .bench.collectives import sizes

_FIRST_BYTES, _LAST_BYTES = 1 << 10, 256 << 20
_MOST_RANKS = 8
_TIMEOUT_SECONDS = 60.0
_WHOLE_SECONDS = 600.0


@dataclass(frozen=True)
class Schedule:
    """How thoroughly is measured."""

    step: int  # from one size to the next
    calls: int  # of a batch, in one graph
    batches: int
    warmup: int = 3


THOROUGH, QUICK = Schedule(2, 20, 10), Schedule(4, 10, 5)


def tune(
    ranks: Annotated[
        list[int] | None,
        typer.Option(min=2, max=_MOST_RANKS, help="GPUs that take part; by default all. May be repeated."),
    ] = None,
    output_file: Annotated[
        Path, typer.Option("-o", "--output-file", metavar="FILE", help="Where the model goes.")
    ] = Path("narrowcast.costs"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repetitions: within a minute.")] = False,
    reports: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="REPORT.json", help="Measure nothing: take the times of `narrowcast bench`."),
    ] = None,
    nccl: Annotated[
        Path | None, typer.Option(metavar="PATH", help="NCCL's library. By default the pip wheel's, or libnccl.so.2.")
    ] = None,
) -> None:
    """Measure every way of every operation between this machine's GPUs, and write the cost model of it."""
    # Before the work, not after it.
    check_writable(output_file)
    times = Times()
    if reports:
        if ranks or quick or nccl:
            raise BadUse("--from measures nothing: --ranks, --quick and --nccl are not for it")
        machine, remarks = _add_reports(times, reports)
        kernels = UNKNOWN_KERNELS
    else:
        remarks = []
        kernels = library().ncast_kernels_hash().decode()
        for number in _numbers_of_ranks(ranks):
            _, remark = measure(times, number, QUICK if quick else THOROUGH, nccl=nccl)
            remarks.append(remark)
        machine = bench_report.machine()
    text = times.text(machine, *remarks, kernels=kernels)
    with new_file(output_file) as file:
        write_all(file, memoryview(text.encode()), str(output_file))
        try:
            load(Path(file.name))
        except InvalidArgumentError as error:
            what = str(error).replace(file.name, str(output_file))
            raise BadUse(f"the times make no model that can be loaded, and none is written: {what}") from None
    for number, link in dict.fromkeys((curve.ranks, curve.link) for curve in times.curves()):
        console().print(_table(times, number, output_file, link))
    print(f"NARROWCAST_COST_MODEL={output_file.resolve()} has communicators of GPUs choose so")


def _numbers_of_ranks(asked: list[int] | None) -> list[int]:
    here = device_count()
    if here < 2:
        raise UnsupportedError(f"tune measures between CUDA GPUs, at least 2, and {here or 'none'} is here")
    numbers = list(dict.fromkeys(asked or [min(here, _MOST_RANKS)]))
    if max(numbers) > here:
        raise UnsupportedError(f"tune takes a GPU a rank: {max(numbers)} ranks are asked for, {here} GPUs are here")
    return numbers


def _add_reports(times: Times, paths: list[Path]) -> tuple[str, list[str]]:
    """The machine, and remarks on where the times are from."""
    machines, remarks = [], []
    for path in paths:
        try:
            document = json.loads(path.read_text())
            for report in document.get("runs", [document]):
                times.add_report(report, document.get("environment") or "")
            machines.append(document["machine"])
            remarks.append(f"{path.name}, commit {document['commit']}")
        except ContradictionError as error:
            raise BadUse(f"{path}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadUse(f"{path} is no report of narrowcast bench between GPUs") from None
    if len(set(machines)) > 1:
        raise BadUse(f"the reports are of several machines: {', '.join(dict.fromkeys(machines))}")
    if not times.curves():
        raise BadUse("no report has times between GPUs, in graphs and out of place")
    return machines[0], remarks


def measure(
    times: Times,
    ranks: int,
    schedule: Schedule,
    *,
    nccl: Path | None = None,
    operations: tuple[str, ...] = OPERATIONS,
    last_bytes: int = _LAST_BYTES,
    job: str = "narrowcast._bench.tune_ranks:tune",
) -> tuple[str, str]:
    """Adds what the ranks measure; the link that they have, and a remark on how it was measured.

    operations, last_bytes, job: for tests, which have neither GPUs nor time.
    """
    arguments = {
        # Made here: this process lives as long as the ranks.
        **{f"{name}_id": unique_id().hex() for name in ("host", "packets", "blocks")},
        "ranks": ranks,
        "operations": operations,
        "sizes": list(sizes(_FIRST_BYTES, last_bytes, schedule.step)),
        "iterations": schedule.calls,
        "graph_calls": schedule.calls,
        "warmup": schedule.warmup,
        "batches": schedule.batches,
        "nccl": None if nccl is None else str(nccl),
        "timeout_seconds": _TIMEOUT_SECONDS,
    }
    value_bytes = value_type(DTYPE).bytes
    where: dict[str, Any] = {}
    seen: set[tuple[str, str]] = set()

    def add(results: list[dict[str, Any]]) -> None:
        first = results[0]
        if not where:
            where.update(first)
            for note in first["notes"]:
                print(f"# {note}", flush=True)
            return
        operation, data = first["operation"], first["data"]
        if (operation, data) not in seen and sys.stderr.isatty():
            print(f"{operation} between {ranks} GPUs, data {data} ...", file=sys.stderr, flush=True)
        seen.add((operation, data))
        for name in first["contenders"]:
            microseconds = 1e6 * bench_report.seconds_of([result["contenders"][name] for result in results])
            ours = f"{name}/incompressible" if data == INCOMPRESSIBLE else name
            for series in series_of_nccl(name) if name.startswith("nccl") else (ours,):
                curve = Curve(call_of(operation), ranks, where["link"], series)
                times.add(curve, first["count"] * value_bytes, microseconds)

    run_ranks(job, [{**arguments, "rank": rank} for rank in range(ranks)], add, timeout_seconds=_WHOLE_SECONDS)
    theirs = f", NCCL {where['versions']['nccl']}" if where["versions"]["nccl"] else ", without NCCL"
    return where["link"], (
        f"{ranks} ranks: Narrowcast {where['versions']['narrowcast']}, commit {bench_report.commit()}{theirs}; "
        f"graphs of {schedule.calls} calls, {schedule.batches} times, slowest rank, median"
    )


def _table(times: Times, ranks: int, path: Path, link: str) -> Table:
    """Where the model switches, asked of the functions that choose by it."""
    through = " through host memory" if link == "host" else ""
    title = f"{ranks} ranks{through}, {DTYPE}, codec auto: bytes of what one rank sends another"
    table = Table(title=title, title_justify="left")
    for name in ("", "ways", "faster than NCCL from"):
        table.add_column(name, overflow="fold")
    curves = [curve for curve in times.curves() if (curve.ranks, curve.link) == (ranks, link)]
    ask = functools.partial(explain, dtype=DTYPE, ranks=ranks, cost_model=path, p2p=link != "host")
    for operation in dict.fromkeys(curve.operation for curve in curves):
        of_operation = functools.partial(ask, operation)
        table.add_row(operation, _ways(of_operation), _wins(of_operation))
    return table


def _ways(ask: Callable[[int], Explanation]) -> str:
    """ "packets, raw blocks from 1.49 MiB, window from 12.08 MiB" """

    def way(count: int) -> str:
        said = ask(count)
        return "packets" if said.path == "packets" else "window" if said.codec == "window" else "raw blocks"

    (_, first), *others = changes(way, *_COUNTS)
    return ", ".join([first, *(f"{name} from {_bytes_text(count)}" for count, name in others)])


def _wins(ask: Callable[[int], Explanation]) -> str:
    """The sizes where NCCL is predicted to take longer: "all", "up to 1.00 MiB, from 16.00 MiB"."""

    def wins(count: int) -> bool | None:
        times = ask(count).predicted
        return None if times.nccl is None or times.chosen is None else times.chosen < times.nccl

    found = changes(wins, *_COUNTS)
    if found[0][1] is None:
        return "not known"
    parts = []
    for (begin, won), (end, _) in pairwise([*found, (0, None)]):
        if not won:
            continue
        since = "" if begin == _COUNTS[0] else f"from {_bytes_text(begin)}"
        until = "" if end == 0 else f"to {_bytes_text(end)}"
        parts.append(f"{since} {until}".strip() or "all")
    return ", ".join(parts) or "none"


_COUNTS = (_FIRST_BYTES // value_type(DTYPE).bytes, _LAST_BYTES // value_type(DTYPE).bytes)


def _bytes_text(count: int) -> str:
    return bytes_text(count * value_type(DTYPE).bytes)
