"""`store verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from ... import store
from ..._files.display import printable
from ...errors import CorruptError
from .._common import existing_file, print_json


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table file.")],
    threads: Annotated[int, typer.Option(min=0, help="Threads that decode; 0: the number of CPUs.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check all checksums of a table file, and decode all rows. Exit status 1 if there is damage."""
    report = store.verify(existing_file(file), threads=threads)
    if json:
        print_json({**asdict(report), "good": report.good})
    elif report.good:
        print(printable(f"{file}: {report.rows} rows, no damage"))
    else:
        for fault in report.faults:
            print(printable(f"{file}: {fault}"))
        if report.damaged:
            rows = ", ".join(_ranges(report.damaged))
            more = ", ..." if report.damaged_rows > len(report.damaged) else ""
            print(printable(f"{file}: {report.damaged_rows} of {report.rows} rows are damaged: {rows}{more}"))
    if not report.good:
        raise CorruptError(f"{file} is damaged")


def _ranges(rows: Sequence[int]) -> Iterator[str]:
    """Ascending numbers with ranges for consecutive ones: "3", "7 to 9"."""
    # Consecutive numbers differ from their places by the same.
    for _, group in groupby(enumerate(rows), lambda placed: placed[1] - placed[0]):
        numbers = [row for _, row in group]
        yield " to ".join(dict.fromkeys(map(str, (numbers[0], numbers[-1]))))
