"""Runs PyTorch's own tests of torch.distributed, which are part of its wheel, on NCCL with one process per GPU.

    python torch_tests.py --ranks 2 --json torch_tests.json

Each test is a process of its own with a time limit. The report lists the tests that passed, that failed with the end of
their output, and the number that torch skips on this machine. Needs the package expecttest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 100
FIRST_PORT = 20000
LOG_CHARACTERS = 1500


# Torch's tests read these when they are imported.
_folder = tempfile.TemporaryDirectory()
_DEFAULTS = {
    "BACKEND": "nccl",  # gloo: to try the program
    "INIT_METHOD": "env://",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": str(FIRST_PORT),
    "WORLD_SIZE": "2",
    "TEMP_DIR": _folder.name,
}
os.environ |= {name: value for name, value in _DEFAULTS.items() if name not in os.environ}
for _name in ("barrier", "test_dir"):
    (Path(os.environ["TEMP_DIR"]) / _name).mkdir(exist_ok=True)

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


class Tests(TestDistBackend, DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()


def run(number: int, name: str, ranks: int) -> tuple[str, str]:
    """The outcome of a test, and its output."""
    with tempfile.TemporaryDirectory() as folder:
        # A test may also use the next port.
        environment = {"TEMP_DIR": folder, "WORLD_SIZE": str(ranks), "MASTER_PORT": str(FIRST_PORT + 2 * number)}
        test = subprocess.Popen(
            [sys.executable, "-m", "unittest", f"{Path(__file__).stem}.Tests.{name}"],
            cwd=Path(__file__).parent,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output = test.communicate(timeout=LIMIT_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(test.pid, 9)
            return "failed", f"{test.communicate()[0]}\ndid not end within {LIMIT_SECONDS} s"
    if test.returncode:
        return "failed", output
    return "skipped" if "skipped=1" in output else "passed", output


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) * 3 // 4), help="tests at a time")
    options.add_argument("--json", type=Path, help="file for the report")
    arguments = options.parse_args()
    names = unittest.TestLoader().getTestCaseNames(Tests)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        ended = pool.map(run, range(len(names)), names, [arguments.ranks] * len(names))
        outcomes = dict(zip(names, ended, strict=True))
    report: dict[str, Any] = {
        "faults": [],
        "passed": [name for name, (outcome, _) in outcomes.items() if outcome == "passed"],
        "failed": {name: text[-LOG_CHARACTERS:] for name, (outcome, text) in outcomes.items() if outcome == "failed"},
        "skipped": sum(outcome == "skipped" for outcome, _ in outcomes.values()),
    }
    print(f"{len(report['passed'])} passed, {len(report['failed'])} failed, {report['skipped']} skipped")
    print(*report["failed"], sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
