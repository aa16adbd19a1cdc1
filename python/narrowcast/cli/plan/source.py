"""The files of the commands: the FILE argument, the options with which it is read, and drawings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..._files.atomic import check_writable
from ..._plan.drawing import check_path
from ..._plan.loading import load, read
from ..._plan.report import Report
from ...errors import InvalidArgumentError, UnsupportedError
from ...plan import Plan
from .._common import STANDARD_STREAM, BadUse, existing_file, output_file
from ._signals import ended_by_signals

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A plan (JSON, MSCCL XML, MSCCL++ JSON; -: standard input), or a Python program (.py)."
    ),
]
RanksOption = Annotated[
    int | None, typer.Option("--ranks", min=1, help="For programs: the argument `ranks` of the function `plan`.")
]
DepthOption = Annotated[
    int | None,
    typer.Option("--depth", min=1, help="For MSCCL XML: messages in flight on a connection. Default: as its protocol."),
]


def plan_of(name: str, ranks: int | None, depth: int | None) -> Plan:
    """The plan of a FILE argument."""
    if name == STANDARD_STREAM:
        return read(sys.stdin.buffer.read(), "standard input", ranks=ranks, depth=depth)
    return load(existing_file_name(name), ranks=ranks, depth=depth)


def proved_plan_of(name: str, ranks: int | None, depth: int | None) -> tuple[Plan, Report]:
    """The same and its proof. Raises InvalidArgumentError if it is refuted, and UnsupportedError if it is too large."""
    plan = plan_of(name, ranks, depth)
    return plan, proof_of(plan, name)


def proof_of(plan: Plan, name: str) -> Report:
    """The proof of a plan. Raises an error of one line if there is none, as `proved_plan_of`."""
    with ended_by_signals():
        report = plan.verify()
    if not report.proved:
        fault, *steps = str(report).splitlines()
        hint = "; `narrowcast plan verify` shows the steps that lead to it" if steps else ""
        raise (UnsupportedError if report.verdict == "unsupported" else InvalidArgumentError)(f"{name}: {fault}{hint}")
    return report


def existing_file_name(name: str) -> str:
    """The name, if it is that of a file. Raises OSError otherwise."""
    return str(existing_file(Path(name)))


def check_drawing(path: Path, source: str) -> None:
    """Raises BadUse, or what writing it would raise, if a drawing or a trace cannot be written. Before long work."""
    try:
        check_path(path)
    except InvalidArgumentError as error:
        raise BadUse(str(error)) from None
    output_file(str(path), source)
    check_writable(path)
