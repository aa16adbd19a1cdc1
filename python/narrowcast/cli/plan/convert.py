"""`plan import`: reads a plan in any format and writes it in another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._files.atomic import write_file
from ..._plan import formats
from .._common import STANDARD_STREAM, BadUse, output_file
from .source import DepthOption, RanksOption, SourceArgument, plan_of


def _format(name: str) -> str:
    if name not in formats.FORMATS:
        raise BadUse(f"{name!r} is not a format of plans (known: {', '.join(formats.FORMATS)})")
    return name


def convert(
    source: SourceArgument,
    output: Annotated[str, typer.Option("-o", "--output", metavar="OUT", help="-: standard output.")] = STANDARD_STREAM,
    form: Annotated[
        str, typer.Option("-f", "--format", callback=_format, help=f"One of {', '.join(formats.FORMATS)}.")
    ] = "json",
    ranks: RanksOption = None,
    depth: DepthOption = None,
) -> None:
    """Convert a plan to JSON or to another format.

    A warning says what the libraries that read the format have no room for.
    """
    text = plan_of(source, ranks, depth).export(form)
    if output == STANDARD_STREAM:
        print(text, end="")
    else:
        target = output_file(output, source)
        assert isinstance(target, Path)
        write_file(target, text.encode())
