"""Combines reports of narrowcast bench in a folder; each states its own machine and command."""

import json
import sys
from pathlib import Path

from provenance import compiler


def main() -> None:
    runs = [json.loads(path.read_text()) for path in sorted(Path(sys.argv[1]).glob("*.json"))]
    # Fields that all runs share appear once.
    shared = {name: runs[0][name] for name in ("machine", "commit") if runs}
    for run in runs:
        for name, value in shared.items():
            if run.pop(name) != value:
                raise SystemExit(f"the runs have different machines or commits: {value!r} and others")
    report = {**shared, "compiler": compiler(), "runs": runs}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
