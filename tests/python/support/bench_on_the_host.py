"""Runs `narrowcast bench` on the host backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

ONE_SIZE = ["-b", "4K", "-e", "4K", "-n", "2", "-w", "1", "--backend", "host"]


def report_on_the_host(cli: Callable[..., Any], operation: str, *arguments: object) -> dict[str, Any]:
    """The report of two ranks, with correct results."""
    done = cli("bench", operation, *ONE_SIZE, "--ranks", "2", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert all(row["wrong"] == 0 for row in report["rows"])
    return report
