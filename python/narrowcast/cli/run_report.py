"""The traffic of a command as a table on standard error, because standard output belongs to the command."""

from __future__ import annotations

from .._dropin.traffic import CommunicatorTraffic, Links, Report, Traffic
from .._files.display import bytes_text
from ._tables import Column, Table, print_wrapped

_NOTHING = "narrowcast: no calls of NCCL were intercepted (run narrowcast doctor -- COMMAND to find out why)"
_GRAPHS_NOTE = (
    "in graphs: calls captured in CUDA graphs, counted once. raw and wire include replays, except short messages."
)
_TIMES_NOTE = (
    "saved per rank: the time that calls outside of graphs save over NCCL, as the cost model predicts; not measured."
)


# Predictions are said to miss beyond this factor.
_MOST_OFF = 1.25


def print_report(report: Report) -> None:
    communicators = [one for one in report.communicators() if one.operations]
    if not communicators:
        print_wrapped(_NOTHING, to_stderr=True)
        return
    operations = [traffic for one in communicators for traffic in one.operations.values()]
    has_graphs, has_times = any(one.captured for one in operations), any(one.predicted for one in operations)
    graphs = [Column("in graphs", is_number=True, rank=2)] * has_graphs
    saved = [Column("saved per rank", is_number=True, rank=1)] * has_times
    table = Table(
        Column("communicator", rank=4),
        Column("ranks", is_number=True, rank=5),
        Column("operation"),
        Column("executed", is_number=True),
        *graphs,
        Column("raw", is_number=True, rank=3),
        Column("wire", is_number=True, rank=6),
        Column("ratio", is_number=True),
        *saved,
        Column("forwarded", is_number=True),
        Column("reason for forwarding", folds=True),
        title="Traffic through Narrowcast, summed over all ranks that reported",
    )
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
                [f"{reason} ({count:,})" for reason, count in traffic.reasons.items()],
                end_section=place == len(one.operations) - 1,
            )
    table.print(to_stderr=True)
    if has_graphs:
        print_wrapped(_GRAPHS_NOTE, to_stderr=True)
    if has_times:
        print_wrapped(_TIMES_NOTE, to_stderr=True)
    for one in communicators:
        for traffic in one.operations.values():
            for (rule, codec), calls in traffic.lossy.items():
                print_wrapped(
                    f"not exact: {calls:,} of {traffic.taken:,} {traffic.operation} between {one.ranks} ranks used "
                    f"{codec}, which {rule} allows.",
                    to_stderr=True,
                )
            if traffic.time_ratio is not None and not 1 / _MOST_OFF <= traffic.time_ratio <= _MOST_OFF:
                print_wrapped(
                    f"{traffic.operation} between {one.ranks} ranks takes {traffic.time_ratio:.2f} times the predicted "
                    "time: narrowcast tune measures this machine.",
                    to_stderr=True,
                )


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
