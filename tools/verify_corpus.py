"""Verifies all plans in folders, for example the published ones of MSCCL and MSCCL++, and prints a table.

    verify_corpus.py FOLDER... [--ring-depth 8] [-o FILE]

Reads every .xml and .json file below the folders that contains a plan. The columns: the verdict, the property that is
refuted, the messages that every ring must hold (and if each chunk of a message is one of its own), and the seconds that
reading and proving took. Several depths (--ring-depth 0 --ring-depth 8) make a table each. FILE gets all of them as
JSON, and names the files that are copies of others. Needs the library, not a GPU.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from narrowcast._plan.formats import recognize
from narrowcast._plan.loading import read
from narrowcast.errors import InvalidArgumentError, NarrowcastError

ROOT = Path(__file__).parents[1]


class Row(NamedTuple):
    """The result of one file."""

    file: str
    verdict: str  #: of messages as they are
    split: str  #: the same if each chunk is a message; "" if there is no verdict, or no plan
    property: str
    least_depth: int | None
    split_depth: int | None
    steps: int
    seconds: float
    message: str


def plans_below(folders: list[Path]) -> list[Path]:
    """The files that contain plans, in order."""
    files = (path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*")))
    documents = (path for path in files if path.suffix in (".xml", ".json") and path.is_file())
    return sorted(path for path in documents if recognize(path.read_bytes()) is not None)


def verify(path: Path, root: Path, ring_depth: int) -> Row:
    """The row of a file below the folder `root`."""
    name = str(path.relative_to(root))
    start = time.perf_counter()
    try:
        report = read(path.read_bytes(), name).verify(depth=ring_depth)
    except NarrowcastError as error:
        verdict = "invalid" if isinstance(error, InvalidArgumentError) else "unsupported"
        message = str(error).removeprefix(f"{name}: ")
        return Row(name, verdict, "", "", None, None, 0, time.perf_counter() - start, message)
    fault = report.fault
    return Row(
        name,
        report.verdict,
        ("proved" if report.split_fault is None else "refuted") if report.proved else "",
        "" if fault is None else fault.property,
        report.least_depth or None,
        report.depth_needed_when_split or None,
        report.steps,
        time.perf_counter() - start,
        "" if fault is None else str(fault).splitlines()[0],
    )


def verdict_of(row: Row) -> str:
    return f"{row.verdict}, not split" if (row.verdict, row.split) == ("proved", "refuted") else row.verdict


def table(rows: list[Row], seconds: float) -> str:
    width = max(len(row.file) for row in rows)
    lines = [f"{'file':{width}}  {'verdict':17}  {'property':9}  depth  split   steps  seconds"]
    for row in rows:
        numbers = f"{row.least_depth or '':>5}  {row.split_depth or '':>5}  {row.steps:6}  {row.seconds:7.3f}"
        lines.append(f"{row.file:{width}}  {verdict_of(row):17}  {row.property:9}  {numbers}  {row.message}".rstrip())
    counts = collections.Counter(verdict_of(row) for row in rows)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    lines.append(f"{len(rows)} plans, {sum(row.steps for row in rows)} steps in {seconds:.1f} s: {summary}")
    return "\n".join(lines)


def copies(paths: list[Path], root: Path) -> dict[str, str]:
    """Files that have the same content as an earlier one, which is given."""
    first: dict[bytes, str] = {}
    found = {}
    for path in paths:
        name = str(path.relative_to(root))
        original = first.setdefault(hashlib.sha256(path.read_bytes()).digest(), name)
        if original != name:
            found[name] = original
    return found


def document(rows: dict[int, list[Row]], seconds: dict[int, float], copy_of: dict[str, str]) -> str:
    """The file with all rows, by depth."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    header = {
        "command": shlex.join(["tools/verify_corpus.py", *sys.argv[1:]]),
        "commit": commit.strip(),
        "seconds": {depth_name(depth): round(one, 1) for depth, one in seconds.items()},
        "summary": {
            suffix: {
                depth_name(depth): _summary([row for row in own if row.file.endswith(suffix)], copy_of)
                for depth, own in rows.items()
            }
            for suffix in sorted({Path(row.file).suffix for own in rows.values() for row in own})
        },
    }
    plans: dict[str, dict[str, Any]] = {}
    for depth, own in rows.items():
        for row in own:
            same = {"same_as": copy_of[row.file]} if row.file in copy_of else {}
            plans.setdefault(row.file, {"steps": row.steps, **same})[depth_name(depth)] = {
                name: round(value, 4) if name == "seconds" else value
                for name, value in row._asdict().items()
                if name not in ("file", "steps") and value not in ("", None)
            }
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(plan)}" for name, plan in plans.items())
    text = json.dumps(header, indent=1).removesuffix("\n}")
    return f'{text},\n "plans": {{\n  {lines}\n }}\n}}\n'


def _summary(rows: list[Row], copy_of: dict[str, str]) -> dict[str, Any]:
    return {
        "files": len(rows),
        "different_files": sum(row.file not in copy_of for row in rows),
        **dict(sorted(collections.Counter(row.verdict for row in rows).items())),
        "proved_and_split": sum(row.split == "proved" for row in rows),
        "steps": sum(row.steps for row in rows),
    }


def depth_name(depth: int) -> str:
    return f"depth_{depth}" if depth else "own_depth"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--ring-depth",
        type=int,
        action="append",
        metavar="DEPTH",
        help="messages that every ring holds; 0, the default: as the plan says",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    arguments = parser.parse_args()
    paths = plans_below(arguments.folders)
    if not paths:
        print("there are no plans", file=sys.stderr)
        return 2
    root = Path(os.path.commonpath([path.parent for path in paths]))
    rows: dict[int, list[Row]] = {}
    seconds: dict[int, float] = {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for depth in dict.fromkeys(arguments.ring_depth or [0]):
            start = time.perf_counter()
            rows[depth] = list(pool.map(partial(verify, root=root, ring_depth=depth), paths, chunksize=1))
            seconds[depth] = time.perf_counter() - start
            print(table(rows[depth], seconds[depth]))
    if arguments.output is not None:
        arguments.output.write_text(document(rows, seconds, copies(paths, root)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
