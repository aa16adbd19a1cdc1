"""What went through Narrowcast while a command ran, as a table on standard error: standard output is the command's."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from .._dropin.traffic import CommunicatorTraffic, Links, Report, Traffic
from ._common import bytes_text

_OF_GRAPHS = (
    "in graphs: captured in CUDA graphs, and counted once; raw and wire have what replays send, but for short messages."
)
_OF_TIMES = "saved a rank: outside of graphs, what calls took less than in NCCL, by the cost model; not measured."


def print_report(report: Report) -> None:
    width = None if sys.stderr.isatty() else 160
    out = Console(stderr=True, highlight=False, markup=False, emoji=False, width=width)
    communicators = [one for one in report.communicators() if one.operations]
    if not communicators:
        out.print("narrowcast: no call of NCCL came by (narrowcast doctor -- COMMAND says who would be intercepted)")
        return
    operations = [traffic for one in communicators for traffic in one.operations.values()]
    has_graphs, has_times = any(one.captured for one in operations), any(one.predicted for one in operations)
    table = Table(title="What went through Narrowcast; all ranks that reported together", title_justify="left")
    table.add_column("communicator")
    table.add_column("ranks", justify="right")
    table.add_column("operation")
    graphs, saved = ["in graphs"] * has_graphs, ["saved a rank"] * has_times
    for name in ("taken", *graphs, "raw", "wire", "ratio", *saved, "forwarded"):
        table.add_column(name, justify="right")
    table.add_column("forwarded because", overflow="fold")
    for one in communicators:
        for place, traffic in enumerate(one.operations.values()):
            table.add_row(
                *(_of_communicator(one) if place == 0 else [""] * 2),
                traffic.operation,
                f"{traffic.taken:,}",
                *([f"{traffic.captured:,}"] if has_graphs else []),
                *_sent(traffic.links),
                *([_saved(traffic, len(one.reported))] if has_times else []),
                f"{traffic.forwarded:,}",
                "\n".join(f"{sentence} ({count:,})" for sentence, count in traffic.reasons.items()),
                end_section=place == len(one.operations) - 1,
            )
    out.print(table)
    if has_graphs:
        out.print(_OF_GRAPHS)
    if has_times:
        out.print(_OF_TIMES)


def _of_communicator(one: CommunicatorTraffic) -> list[str]:
    ranks = str(one.ranks) if len(one.reported) == one.ranks else f"{len(one.reported)} of {one.ranks}"
    return [one.communicator[:12] or "-", ranks]


def _sent(links: Links | None) -> list[str]:
    if links is None or links.ratio is None:
        return ["-"] * 3
    return [bytes_text(links.raw_bytes), bytes_text(links.wire_bytes), f"{links.ratio:.3f}"]


def _saved(traffic: Traffic, ranks: int) -> str:
    """Ranks that wait for each other save the same time, so that a sum of theirs would say too much."""
    if not traffic.predicted:
        return "-"
    whole = traffic.predicted == traffic.taken - traffic.captured
    return f"{traffic.saved_seconds / ranks:.3f} s" + ("" if whole else f" of {traffic.predicted:,} calls")
