"""The FILE argument of the commands, and the options with which it is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..._plan.loading import load, read
from ...plan import Plan
from .._common import STANDARD_STREAM, existing_file

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A plan (JSON, MSCCL XML, MSCCL++ JSON; -: standard input), or a Python program (.py)."
    ),
]
RanksOption = Annotated[
    int | None, typer.Option("--ranks", min=1, help="Of a program: the argument `ranks` of its function `plan`.")
]
DepthOption = Annotated[
    int | None,
    typer.Option("--depth", min=1, help="Of MSCCL XML: messages in flight on a connection. Default: its protocol's."),
]


def plan_of(name: str, ranks: int | None, depth: int | None) -> Plan:
    """The plan of a FILE argument."""
    if name == STANDARD_STREAM:
        return read(sys.stdin.buffer.read(), "standard input", ranks=ranks, depth=depth)
    return load(existing_file_name(name), ranks=ranks, depth=depth)


def existing_file_name(name: str) -> str:
    """The name, if it is that of a file. Raises OSError otherwise."""
    return str(existing_file(Path(name)))
