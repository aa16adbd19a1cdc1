"""The traffic of a command as a table on standard error, because standard output belongs to the command."""

from __future__ import annotations

from .._dropin.traffic import CommunicatorTraffic, Links, Report, Traffic
from ._tables import Table, console
from ._terminal import bytes_text

_GRAPHS_NOTE = (
    "in graphs: calls captured in CUDA graphs, counted once. raw and wire include replays, except short messages."
)
_TIMES_NOTE = (
    "saved per rank: the time that calls outside of graphs save over NCCL, as the cost model predicts; not measured."
)


def print_report(report: Report) -> None:
    out = console(stderr=True)
    communicators = [one for one in report.communicators() if one.operations]
    if not communicators:
        out.print("narrowcast: no calls of NCCL were intercepted (run narrowcast doctor -- COMMAND to find out why)")
        return
    operations = [traffic for one in communicators for traffic in one.operations.values()]
    has_graphs, has_times = any(one.captured for one in operations), any(one.predicted for one in operations)
    table = Table(title="Traffic through Narrowcast, summed over all ranks that reported", title_justify="left")
    table.add_column("communicator")
    table.add_column("ranks", justify="right")
    table.add_column("operation")
    graphs, saved = ["in graphs"] * has_graphs, ["saved per rank"] * has_times
    for name in ("executed", *graphs, "raw", "wire", "ratio", *saved, "forwarded"):
        table.add_column(name, justify="right")
    table.add_column("reason for forwarding", overflow="fold")
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
                "\n".join(f"{reason} ({count:,})" for reason, count in traffic.reasons.items()),
                end_section=place == len(one.operations) - 1,
            )
    out.print(table)
    if has_graphs:
        out.print(_GRAPHS_NOTE)
    if has_times:
        out.print(_TIMES_NOTE)


def _of_communicator(one: CommunicatorTraffic) -> list[str]:
    ranks = str(one.ranks) if len(one.reported) == one.ranks else f"{len(one.reported)} of {one.ranks}"
    return [one.communicator[:12] or "-", ranks]


def _sent(links: Links | None) -> list[str]:
    if links is None or links.ratio is None:
        return ["-"] * 3
    return [bytes_text(links.raw_bytes), bytes_text(links.wire_bytes), f"{links.ratio:.3f}"]


def _saved(traffic: Traffic, ranks: int) -> str:
    """Per rank: ranks wait for each other and save the same time, so a sum over ranks would be misleading."""
    if not traffic.predicted:
        return "-"
    whole = traffic.predicted == traffic.taken - traffic.captured
    return f"{traffic.saved_seconds / ranks:.3f} s" + ("" if whole else f" of {traffic.predicted:,} calls")
