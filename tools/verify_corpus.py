"""Verifies all plans in folders, for example the published ones of MSCCL and MSCCL++, and prints a table.

python tools/verify_corpus.py FOLDER... [--ring-depth 8]

Reads every .xml and .json file below the folders that contains a plan. The columns: the verdict, the property that is
refuted, the messages that every ring must hold (and if each chunk of a message is one of its own), and the seconds that
reading and proving took. Needs the library, not a GPU.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from narrowcast._plan.formats import recognize
from narrowcast._plan.loading import read
from narrowcast.errors import InvalidArgumentError, NarrowcastError


class Row(NamedTuple):
    """The result of one file."""

    file: str
    verdict: str
    property: str
    least_depth: str
    split_depth: str
    steps: int
    seconds: float
    message: str


def plans_below(folders: list[Path]) -> list[Path]:
    """The files that contain plans, in order."""
    files = (path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*")))
    documents = (path for path in files if path.suffix in (".xml", ".json") and path.is_file())
    return sorted(path for path in documents if recognize(path.read_bytes()) is not None)


def verify(path: Path, ring_depth: int) -> Row:
    """The row of a file."""
    start = time.perf_counter()
    try:
        report = read(path.read_bytes(), str(path)).verify(depth=ring_depth)
    except NarrowcastError as error:
        verdict = "invalid" if isinstance(error, InvalidArgumentError) else "unsupported"
        message = str(error).removeprefix(f"{path}: ")
        return Row(str(path), verdict, "", "", "", 0, time.perf_counter() - start, message)
    fault = report.fault
    return Row(
        str(path),
        report.verdict if report.split_fault is None else f"{report.verdict}, not split",
        "" if fault is None else fault.property,
        str(report.least_depth or ""),
        str(report.depth_needed_when_split or ""),
        report.steps,
        time.perf_counter() - start,
        "" if fault is None else str(fault).splitlines()[0],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--ring-depth", type=int, default=0, help="messages that every ring holds; 0: as the plan says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    arguments = parser.parse_args()
    start = time.perf_counter()
    paths = plans_below(arguments.folders)
    if not paths:
        print("there are no plans", file=sys.stderr)
        return 2
    root = Path(os.path.commonpath([path.parent for path in paths]))
    with ProcessPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(partial(verify, ring_depth=arguments.ring_depth), paths, chunksize=1))
    rows = [row._replace(file=str(Path(row.file).relative_to(root))) for row in rows]
    width = max(len(row.file) for row in rows)
    print(f"{'file':{width}}  {'verdict':17}  {'property':9}  depth  split   steps  seconds")
    for row in rows:
        numbers = f"{row.least_depth:>5}  {row.split_depth:>5}  {row.steps:6}  {row.seconds:7.3f}"
        print(f"{row.file:{width}}  {row.verdict:17}  {row.property:9}  {numbers}  {row.message}".rstrip())
    counts = collections.Counter(row.verdict for row in rows)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    print(
        f"{len(rows)} plans, {sum(row.steps for row in rows)} steps in {time.perf_counter() - start:.1f} s: {summary}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
