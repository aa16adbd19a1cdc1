"""`tune`: measures every candidate of every operation on this machine, and writes the times as a cost model."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from .._bench import launched
from .._bench.cost_model import UNKNOWN_KERNELS, Curve, Times, coded, load, series_of, series_of_nccl
from .._bench.operations import call_of, names
from .._bench.tune_ranks import DTYPE
from .._bench.tuned_plans import TunedPlan
from .._comm.explain import Explanation, changes, explain
from .._files.atomic import check_writable, new_file, path_of, write_all
from .._files.display import bytes_text, printable
from .._native import cuda_driver
from .._native.codecs import split_codecs
from .._native.library import library
from ..cuda import device_count
from ..errors import InvalidArgumentError, UnsupportedError
from ..types import value_type
from . import _provenance
from ._common import BadUse, backend_name
from ._common import output_file as check_output
from ._sizes import sizes
from ._tables import Column, Table
from .bench import checks
from .bench import report as bench_report
from .bench.options import Hosts
from .tune_between_hosts import BETWEEN_HOSTS, between_hosts_plan_table, between_hosts_table
from .tune_host import LINK, host_plan_table, host_table, measure_host
from .tune_plans import plan_table, plans_of

_FIRST_BYTES, _LAST_BYTES, _LAST_BYTES_BETWEEN_HOSTS = 1 << 10, 256 << 20, 64 << 20
_MAX_RANKS, _MAX_HOST_RANKS = 8, 64
_HOST_RANKS = 4
_MOST_SHARED_KIB = 227  # that kernels use
_CALL_TIMEOUT_SECONDS = 60.0
_RUN_TIMEOUT_SECONDS, _RUN_TIMEOUT_SECONDS_BETWEEN_HOSTS = 600.0, 3600.0
# The tables of links between processes, and between hosts.
_TABLES = {LINK: (host_table, host_plan_table), BETWEEN_HOSTS: (between_hosts_table, between_hosts_plan_table)}


@dataclass(frozen=True)
class Schedule:
    """The number of measurements."""

    size_factor: int  # from one size to the next
    calls: int  # per batch, in one graph
    batches: int
    warmup: int = 3


THOROUGH, QUICK = Schedule(2, 20, 10), Schedule(4, 10, 5)


def tune(
    ranks: Annotated[
        list[int] | None,
        typer.Option(
            min=2, max=_MAX_HOST_RANKS, help="Number of GPUs, or of processes; repeatable. Default: all GPUs, or 4."
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            callback=backend_name,
            help="cuda: between GPUs. host: the plans of calls between processes of this machine.",
        ),
    ] = "cuda",
    output_file: Annotated[
        Path, typer.Option("-o", "--output-file", metavar="FILE", help="The file for the model.")
    ] = Path("narrowcast.costs"),
    hosts: Hosts = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repetitions: within a minute.")] = False,
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="REPORT.json", help="Use the times of this report of `narrowcast bench`; repeatable."
        ),
    ] = None,
    nccl: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Path of NCCL. Default: the pip wheel, or libnccl.so.2.")
    ] = None,
    codecs: Annotated[
        list[str] | None,
        typer.Option(
            "--codec", metavar="CODEC,...", help="Also measure these lossy codecs, such as int8,int4; repeatable."
        ),
    ] = None,
    plans: Annotated[
        list[Path] | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Also measure this plan, a program that writes one (.py), or a folder of plans; repeatable.",
        ),
    ] = None,
) -> None:
    """Measure every candidate of every operation on this machine, and write a cost model."""
    if launched.ran_for_rank_0():
        return
    # Fails before the work, not after it.
    check_output(str(output_file), *map(str, [*(reports or []), *(plans or [])]))
    check_writable(output_file)
    times = Times()
    if reports:
        if ranks or quick or nccl or codecs or plans or backend != "cuda" or hosts > 1:
            raise BadUse(
                "--from uses existing measurements: it excludes --ranks, --hosts, --quick, --nccl, --codec, --plan and "
                "--backend"
            )
        machine, remarks = _add_reports(times, reports)
        kernels, own, shared_kib = UNKNOWN_KERNELS, {}, None
    else:
        checks.started_ranks({"--backend host": backend == "host", "--hosts": hosts > 1, "--ranks": bool(ranks)})
        if backend == "host" and (nccl or codecs or hosts > 1):
            raise BadUse(f"{'--nccl' if nccl else '--codec' if codecs else '--hosts'} is for --backend cuda")
        lossy = _lossy(codecs or [])
        numbers = list(dict.fromkeys(ranks or [_HOST_RANKS])) if backend == "host" else _numbers_of_ranks(ranks)
        if hosts > min(numbers):
            raise BadUse(f"--hosts {hosts} is more than the number of ranks, {min(numbers)}")
        own = plans_of(plans or [], numbers)
        if backend == "host":
            remarks = [measure_host(times, number, quick=quick, plans=own[number]) for number in numbers]
        else:
            schedule = QUICK if quick else THOROUGH
            remarks = [
                measure(times, number, schedule, hosts=hosts, nccl=nccl, codecs=lossy, plans=own[number])[1]
                for number in numbers
            ]
        kernels = library().ncast_kernels_hash().decode()
        machine = _provenance.processor() if backend == "host" else _provenance.machine()
        shared_kib = None if backend == "host" else _shared_kib(max(numbers))
    text = times.text(machine, *remarks, kernels=kernels, shared_kib=shared_kib)
    with new_file(output_file) as file:
        write_all(file, memoryview(text.encode()), str(output_file))
        try:
            load(Path(path_of(file)))
        except InvalidArgumentError as error:
            message = str(error).replace(path_of(file), str(output_file))
            raise BadUse(f"these times make an invalid model, so {output_file} was not written: {message}") from None
    for number, link in dict.fromkeys((curve.ranks, curve.link) for curve in times.curves()):
        show, show_plans = _TABLES.get(link) or (
            functools.partial(_table, link=link),
            functools.partial(_plan_table, link=link),
        )
        show(times, number, output_file).print()
        if own.get(number):
            show_plans(times, number, output_file, own[number]).print()
    print(printable(f"To use this model, set NARROWCAST_COST_MODEL={output_file.resolve()}"))


def _lossy(options: Sequence[str]) -> list[str]:
    """The codecs of the option --codec. The model has times of codecs with their default parameters only."""
    known = coded(DTYPE, exact=False)
    found = list(dict.fromkeys(name for option in options for name in split_codecs(option)))
    for name in found:
        if name not in known:
            raise BadUse(f"--codec {name} is not a lossy codec of {DTYPE} without parameters: {', '.join(known)}")
    return found


def _shared_kib(gpus: int) -> int | None:
    """The KiB of shared memory that a CTA had on the first `gpus` GPUs; None if it had as much as kernels can use."""
    limits = [
        cuda_driver.device_attribute(cuda_driver.SHARED_BYTES, ordinal) >> 10
        for ordinal in range(min(gpus, device_count()))
    ]
    least = min(*limits, int(os.environ.get("NARROWCAST_SHARED_KIB") or _MOST_SHARED_KIB))
    return least if least < _MOST_SHARED_KIB else None


def _numbers_of_ranks(requested: list[int] | None) -> list[int]:
    started = launched.rank_count()
    gpus = started or device_count()
    if gpus < 2:
        raise UnsupportedError(f"tune needs at least 2 CUDA GPUs, but {gpus or 'none'} was found")
    numbers = list(dict.fromkeys(requested or [started or min(gpus, _MAX_RANKS)]))
    if max(numbers) > _MAX_RANKS:
        raise BadUse(f"{max(numbers)} ranks are more than {_MAX_RANKS}, the most GPUs of a communicator of one level")
    if max(numbers) > gpus:
        raise UnsupportedError(
            f"tune needs one GPU per rank: {max(numbers)} ranks were requested, {gpus} GPUs were found"
        )
    return numbers


def _add_reports(times: Times, paths: list[Path]) -> tuple[str, list[str]]:
    """Adds the times of reports. Returns the machine, and remarks that name the reports."""
    machines, remarks = [], []
    for path in paths:
        try:
            document = json.loads(path.read_text())
            for report in document.get("runs", [document]):
                times.add_report(report)
            machines.append(document["machine"])
            remarks.append(f"{path.name}, commit {document['commit']}")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadUse(f"{path} is not a report of narrowcast bench between GPUs") from None
    if len(set(machines)) > 1:
        raise BadUse(f"the reports are from several machines: {', '.join(dict.fromkeys(machines))}")
    if not times.curves():
        raise BadUse("the reports contain no times between GPUs in graphs and out of place")
    return machines[0], remarks


def measure(
    times: Times,
    ranks: int,
    schedule: Schedule,
    *,
    hosts: int = 1,
    nccl: Path | None = None,
    codecs: Sequence[str] = (),
    plans: Sequence[TunedPlan] = (),
    operations: tuple[str, ...] | None = None,
    last_bytes: int | None = None,
    job: str = "narrowcast._bench.tune_ranks:tune",
) -> tuple[str, str]:
    """Runs the ranks and adds the times that they measure. Returns their link, and a remark that describes the run.

    codecs: lossy ones, measured besides every exact one. plans: those of the user, for these ranks.
    operations, last_bytes, job: for tests, which run without GPUs.
    """
    most_bytes, timeout_seconds = (
        (_LAST_BYTES, _RUN_TIMEOUT_SECONDS)
        if hosts == 1
        else (_LAST_BYTES_BETWEEN_HOSTS, _RUN_TIMEOUT_SECONDS_BETWEEN_HOSTS)
    )
    arguments = {
        # Created here, because this process lives as long as the ranks.
        **{f"{name}_id": launched.unique_id().hex() for name in ("host", "packets", "blocks")},
        "ranks": ranks,
        "operations": operations or names(),
        "sizes": list(sizes(_FIRST_BYTES, last_bytes or most_bytes, schedule.size_factor)),
        "iterations": schedule.calls,
        "graph_calls": schedule.calls,
        "hosts": hosts,
        "warmup": schedule.warmup,
        "batches": schedule.batches,
        "nccl": None if nccl is None else str(nccl),
        "codecs": list(codecs),
        "plans": [dataclasses.asdict(plan) for plan in plans],
        "timeout_seconds": _CALL_TIMEOUT_SECONDS,
    }
    value_bytes = value_type(DTYPE).bytes
    setup: dict[str, Any] = {}
    seen: set[tuple[str, str]] = set()

    def add(results: list[dict[str, Any]]) -> None:
        first = results[0]
        if not setup:
            setup.update(first)
            for note in first["notes"]:
                print(f"# {note}", flush=True)
            return
        operation, data = first["operation"], first["data"]
        if (operation, data) not in seen and sys.stderr.isatty():
            print(f"{operation} between {ranks} GPUs, data {data} ...", file=sys.stderr, flush=True)
        seen.add((operation, data))
        for name in first["contenders"]:
            microseconds = 1e6 * bench_report.seconds_of([result["contenders"][name] for result in results])
            for series in series_of_nccl(name) if name.startswith("nccl") else (series_of(name, data),):
                curve = Curve(call_of(operation), ranks, setup["link"], series)
                times.add(curve, first["count"] * value_bytes, microseconds)

    launched.run_ranks(
        job, [{**arguments, "rank": rank} for rank in range(ranks)], add, timeout_seconds=timeout_seconds
    )
    versions = setup["versions"]
    where = f" on {hosts} hosts" if hosts > 1 else ""
    nccl_version = f"NCCL {versions['nccl']}" if versions["nccl"] else "without NCCL"
    return setup["link"], (
        f"{ranks} ranks{where}: Narrowcast {versions['narrowcast']}, commit {_provenance.commit()}, {nccl_version}; "
        f"graphs of {schedule.calls} calls, fewer if they are long, {schedule.batches} times, slowest rank, median"
    )


def _table(times: Times, ranks: int, path: Path, link: str) -> Table:
    """The sizes at which the choice changes. The library makes the choices, with the new model."""
    through = " through host memory" if link == "host" else ""
    names = ("", "choice of auto, by bytes from rank to rank", "faster than NCCL")
    table = Table(*(Column(name, folds=True) for name in names), title=f"{ranks} ranks{through}, {DTYPE}")
    curves = [curve for curve in times.curves() if (curve.ranks, curve.link) == (ranks, link)]
    ask = functools.partial(explain, dtype=DTYPE, ranks=ranks, cost_model=path, p2p=link != "host")
    for operation in dict.fromkeys(curve.operation for curve in curves):
        explain_count = functools.partial(ask, operation)
        table.add_row(operation, _choices(explain_count), _wins(explain_count))
    return table


def _plan_table(times: Times, ranks: int, path: Path, plans: Sequence[TunedPlan], link: str) -> Table:
    """The sizes for which plans of the user were faster than what runs without them."""
    value_bytes = value_type(DTYPE).bytes

    def other(plan: TunedPlan, count_bytes: int) -> float | None:
        count = count_bytes // value_bytes
        said = explain(plan.operation, count, dtype=DTYPE, ranks=ranks, cost_model=path, p2p=link != "host")
        return said.predicted.chosen

    return plan_table(times, ranks, link, plans, other)


def _choices(explain_count: Callable[[int], Explanation]) -> str:
    """ "packets, raw blocks from 1.49 MiB, window from 12.08 MiB" """

    def choice(count: int) -> str:
        explanation = explain_count(count)
        if explanation.path == "packets":
            return "packets"
        return "raw blocks" if explanation.codec == "raw" else explanation.codec

    (_, first), *others = changes(choice, *_COUNTS)
    return ", ".join([first, *(f"{name} from {_bytes_text(count)}" for count, name in others)])


def _wins(explain_count: Callable[[int], Explanation]) -> str:
    """The sizes for which NCCL is predicted to take longer: "all", "to 1.00 MiB, from 16.00 MiB"."""

    def wins(count: int) -> bool | None:
        times = explain_count(count).predicted
        return None if times.nccl is None or times.chosen is None else times.chosen < times.nccl

    found = changes(wins, *_COUNTS)
    if found[0][1] is None:
        return "unknown"
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
