"""What went through Narrowcast while a command ran, as a table on standard error: standard output is the command's."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from .._traffic import Report
from ._common import bytes_text


def print_report(report: Report) -> None:
    width = None if sys.stderr.isatty() else 160
    out = Console(stderr=True, highlight=False, markup=False, emoji=False, width=width)
    communicators = [one for one in report.communicators() if one.operations]
    if not communicators:
        out.print("narrowcast: no call of NCCL came by (narrowcast doctor -- COMMAND says who would be intercepted)")
        return
    timed = any(traffic.saved_seconds is not None for one in communicators for traffic in one.operations.values())
    table = Table(title="What went through Narrowcast; all ranks that reported together", title_justify="left")
    table.add_column("communicator")
    table.add_column("ranks", justify="right")
    table.add_column("operation")
    for name in ("taken", "forwarded", "raw", "wire", "ratio", *(["saved"] if timed else [])):
        table.add_column(name, justify="right")
    table.add_column("forwarded because", overflow="fold")
    for one in communicators:
        ranks = str(one.ranks) if len(one.reported) == one.ranks else f"{len(one.reported)} of {one.ranks}"
        operations = list(one.operations.values())
        for traffic in operations:
            first = traffic is operations[0]
            table.add_row(
                (one.communicator[:12] or "-") if first else "",
                ranks if first else "",
                traffic.operation,
                f"{traffic.taken:,}",
                f"{traffic.forwarded:,}",
                bytes_text(traffic.raw_bytes),
                bytes_text(traffic.wire_bytes),
                "-" if traffic.ratio is None else f"{traffic.ratio:.3f}",
                *([f"{traffic.saved_seconds or 0:.3f} s"] if timed else []),
                "\n".join(f"{sentence} ({count:,})" for sentence, count in traffic.reasons.items()),
                end_section=traffic is operations[-1],
            )
    out.print(table)
