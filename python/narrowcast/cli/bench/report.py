"""The rows of `bench OPERATION`: the columns of nccl-tests for each contender, and the JSON report."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from ..._bench import operations
from ..._bench.nccl_library import VARIANTS
from ...types import ValueType
from .._provenance import commit, machine, processor


def heading(
    settings: dict[str, Any], backend: str, ranks: int, command: str, results: list[dict[str, Any]]
) -> dict[str, Any]:
    """The report without rows, from the first results of the ranks."""
    first = results[0]
    return {
        "command": command,
        "commit": commit(),
        "machine": machine() if backend == "cuda" else processor(),
        "device": first.get("device"),
        "link": first.get("link"),
        "versions": first["versions"],
        "contenders": first["contenders"],
        "notes": first["notes"],
        "backend": backend,
        "ranks": ranks,
        **settings,
    }


# How the times of the ranks are combined, with the numbers of nccl-tests.
SLOWEST = 3
_AVERAGES: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("rank 0", lambda ranks: ranks[0]),
    ("average of the ranks", statistics.fmean),
    ("fastest rank", min),
    ("slowest rank", max),
)


def seconds_of(own: list[dict[str, Any]], average: int = SLOWEST, clock: str = "seconds") -> float:
    """The time of a call: the median over batches of the combined times of the ranks.

    clock: "seconds", until calls are done, or "cpu_seconds", until the host has made them.
    """
    of_batch = _AVERAGES[average][1]
    return statistics.median(float(of_batch(batch)) for batch in zip(*(one[clock] for one in own), strict=True))


def rows_of(
    settings: dict[str, Any], kind: ValueType, ranks: int, results: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each contender, from the results of all ranks for one count."""
    operation, count = settings["operation"], results[0]["count"]
    size = operations.size_of(operation, count, kind, ranks)
    rows = []
    for name in results[0]["contenders"]:
        own = [result["contenders"][name] for result in results]
        average = settings.get("average", SLOWEST)
        seconds = seconds_of(own, average)
        raw_bytes = sum(one["raw_bytes"] for one in own)
        wire_bytes = sum(one["wire_bytes"] for one in own)
        wrong = [one["wrong"] for one in own]
        algorithm = size / seconds / 1e9
        is_ours = name not in VARIANTS
        rows.append(
            {
                "size_bytes": size,
                "count": count,
                "type": kind.name,
                "redop": settings["op"] if operations.describe(operation).reduces else "none",
                "root": settings["root"] if operations.describe(operation).has_root else -1,
                "contender": "narrowcast" if is_ours else name,
                "codec": name if is_ours else None,
                "time_us": seconds * 1e6,
                "cpu_us": 1e6 * seconds_of(own, average, "cpu_seconds") if settings.get("report_cputime") else None,
                "algbw_gb_per_s": algorithm,
                "busbw_gb_per_s": algorithm * operations.bus_factor(operation, ranks),
                "wrong": None if None in wrong else sum(wrong),
                # 0 if the library could not count the bytes.
                "ratio": wire_bytes / raw_bytes if raw_bytes and wire_bytes else None,
                "raw_bytes": raw_bytes or None,
                "wire_bytes": wire_bytes or None,
            }
        )
    theirs = [row["time_us"] for row in rows if row["codec"] is None]
    for row in rows:
        row["speedup"] = min(theirs) / row["time_us"] if theirs and row["codec"] is not None else None
    return rows


Column = tuple[str, str, int]  # title, unit, width
_WHAT: tuple[Column, ...] = (
    ("size", "(B)", 12),
    ("count", "(elements)", 12),
    ("type", "", 12),
    ("redop", "", 6),
    ("root", "", 5),
)
_SPEED: tuple[Column, ...] = (("time", "(us)", 10), ("algbw", "(GB/s)", 8), ("busbw", "(GB/s)", 8), ("#wrong", "", 7))
_OURS = (*_SPEED, ("ratio", "", 7))
_ALONE = (*_OURS, ("wire", "(B)", 12))
_AGAINST = (*_OURS, ("speedup", "", 8))
# What a narrow terminal does not show, in this order.
_OPTIONAL = ("wire", "count", "root", "redop", "algbw", "type")
_KEYS = {"size": "size_bytes"}


def preamble(report: dict[str, Any], width: int | None = None) -> str:
    """The configuration, and the names of the columns.

    width: of the terminal; columns are left out until a line fits. None: all columns.
    """
    graph = report.get("graph_calls")
    versions = report["versions"]
    nccl = f", NCCL {versions['nccl']}" if versions.get("nccl") else ""
    place = "in place" if report["in_place"] else "out of place"
    unit = f"groups of {report['group_calls']}" if report["group_calls"] > 1 else "calls"
    times = f"{report['iterations']} {unit} timed together, {report['batches']} times, after {report['warmup']}"
    launches = f"graphs of {graph} {unit}" if graph else "launched one by one"
    waited = ", each waited for" if report["blocking"] else ""
    time = "; time: until the host has made a call" if report["report_cputime"] else ""
    ranks = f"{report['ranks']} ranks, backend {report['backend']}"
    lines = [
        f"# {report['operation']}, {ranks}, data {report['data']}, {place}",
        f"# {report['device'] or report['machine']}; Narrowcast {versions['narrowcast']}{nccl}",
        f"# {times}; {launches}{waited}; {_AVERAGES[report['average']][0]}, median{time}",
        *(f"# {note}" for note in report["notes"]),
    ]
    if width is not None:
        lines = [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="#   ")]
    what, groups = _columns(report["contenders"], width)
    if len(groups) > 1:
        over = "".join(f" {name:^{_width(columns)}}" for name, columns in groups)
        lines.append(f"#{'':{_width(what) - 1}}{over}".rstrip())
    columns = [*what, *(column for _, group in groups for column in group)]
    for i in (0, 1):
        text = " ".join(f"{column[i]:>{column[2]}}" for column in columns)
        lines.append("#" + text[1:])
    return "\n".join(lines)


def _columns(contenders: list[str], width: int | None) -> tuple[Sequence[Column], list[tuple[str, Sequence[Column]]]]:
    """The columns of the call, and those of each contender."""
    ours = _AGAINST if any(name in VARIANTS for name in contenders) else _ALONE
    left_out: set[str] = set()
    for name in (*_OPTIONAL, None):
        what = [column for column in _WHAT if column[0] not in left_out]
        groups: list[tuple[str, Sequence[Column]]] = [
            (one, [column for column in (_SPEED if one in VARIANTS else ours) if column[0] not in left_out])
            for one in contenders
        ]
        if name is None or width is None or _width([*what, *(own for _, group in groups for own in group)]) <= width:
            break
        left_out.add(name)
    return what, groups


def _width(columns: Sequence[Column]) -> int:
    return sum(width for _, _, width in columns) + len(columns) - 1


def line(rows: list[dict[str, Any]], *, cpu_time: bool = False, width: int | None = None) -> str:
    """The line for one size. cpu_time: show the time of the host. width: as for `preamble`."""
    what, groups = _columns([row["codec"] or row["contender"] for row in rows], width)
    cells = [str(rows[0][_KEYS.get(name, name)]) for name, _, _ in what]
    for row, (_, columns) in zip(rows, groups, strict=True):
        shown = {**row, "time_us": row["cpu_us"]} if cpu_time else row
        cells += [_cell(shown, name) for name, _, _ in columns]
    widths = [own for _, _, own in (*what, *(column for _, group in groups for column in group))]
    return " ".join(f"{cell:>{own}}" for cell, own in zip(cells, widths, strict=True))


def _cell(row: dict[str, Any], column: str) -> str:
    key, shape, absent = {
        "time": ("time_us", ".1f", "-"),
        "algbw": ("algbw_gb_per_s", ".3f", "-"),
        "busbw": ("busbw_gb_per_s", ".3f", "-"),
        "#wrong": ("wrong", "", "N/A"),
        "ratio": ("ratio", ".4f", "-"),
        "wire": ("wire_bytes", "", "-"),
        "speedup": ("speedup", ".3f", "-"),
    }[column]
    return absent if row[key] is None else format(row[key], shape)


def closing(rows: list[dict[str, Any]]) -> str:
    """The last line of nccl-tests, for each contender."""
    lines = []
    for name in dict.fromkeys(row["codec"] or row["contender"] for row in rows):
        own = [row["busbw_gb_per_s"] for row in rows if name in (row["codec"], row["contender"])]
        lines.append(f"# average bus bandwidth of {name}: {sum(own) / len(own):.3f} GB/s")
    return "\n".join(lines)
