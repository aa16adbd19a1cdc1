"""`codec check`: runs every conformance property on the library of a codec, in a child process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ..._bench import codec_check
from ..._bench.codec_check import PROPERTIES
from ..._bench.launch import run_ranks
from ...errors import RemoteError
from .._common import existing_file, print_json
from .._tables import Column, Table


def check(
    library: Annotated[
        Path, typer.Argument(metavar="LIBRARY", help="A shared library that exports ncast_user_codec().")
    ],
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The longest time until it crashes or ends.")] = 300,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Check that a codec of yours does what every codec must.

    A codec that crashes ends only the child process in which it runs. The exit status is 1 if a property does not hold.
    """
    path = str(existing_file(library).resolve())
    about, faults = _check(path, timeout)
    held = [name for name in PROPERTIES if faults[name] is None]
    if json:
        rows = [{"property": name, "holds": fault is None, "fault": fault} for name, fault in faults.items()]
        print_json({**about, "properties": rows})
    else:
        title = f"The codec {about['codec']}, with {len(about['cases'])} combinations of parameters and types:"
        table = Table(Column("property", folds=True), "holds", Column("why not", folds=True), title=title)
        for name, fault in faults.items():
            table.add_row(name, "yes" if fault is None else "NO", fault or "")
        table.print()
    if len(held) < len(PROPERTIES):
        raise typer.Exit(1)


def _check(path: str, timeout: float) -> tuple[dict[str, Any], dict[str, str | None]]:
    """What the child says about the codec, and the fault of each property."""
    about: dict[str, Any] = {}
    faults: dict[str, str | None] = {}
    running: str | None = None

    def read(results: list[dict[str, Any]]) -> None:
        nonlocal about, running
        event = results[0]
        if "codec" in event:
            about = event
        elif "begins" in event:
            running = event["property"]
        else:
            faults[event["property"]], running = event["fault"], None

    while len(faults) < len(PROPERTIES):
        try:
            arguments = {"path": path, "skipped": list(faults)}
            run_ranks(f"{codec_check.__name__}:check", [arguments], read, timeout_seconds=timeout)
        except RemoteError as error:
            reason = re.sub(r"^ranks? 0:? ", "", str(error))
            if running is None:
                raise RemoteError(reason) from None
            faults[running], running = f"the process {reason}", None
    return about, {name: faults[name] for name in PROPERTIES}
