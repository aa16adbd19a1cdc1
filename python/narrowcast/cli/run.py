"""`run`: a command with Narrowcast in place of NCCL, and what that came to."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated

import typer

from .._dropin import child, nccl_search, preload, traffic
from .._dropin.prometheus import MetricsServer
from .._dropin.prometheus import text as metrics_text
from .._files.atomic import check_writable
from .._native.settings import ATTACHES, DEBUG_LEVELS, PREFIX, TAKES, unknown, unknown_sentence
from ..types import OPERATIONS
from ._common import BadUse, comm_codec_name, existing_file, write_json
from .run_report import print_report

_EVERYTHING = "1"
# Between two reports of a process that runs: what is left of one that is killed, and what Prometheus is told.
REPORT_SECONDS = 2
_LOCAL = "127.0.0.1"


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What to run, with its arguments.")],
    codec: Annotated[
        list[str] | None,
        typer.Option(metavar="[OPERATION=]CODEC", help="auto, raw or window; of one operation or all; repeatable."),
    ] = None,
    take: Annotated[
        str | None, typer.Option(metavar="WHEN", help="auto (where it is faster by the model), always or never.")
    ] = None,
    attach: Annotated[
        str | None, typer.Option(metavar="WHEN", help="first (collective) or init: when a communicator is made.")
    ] = None,
    off: Annotated[
        list[str] | None, typer.Option(metavar="OPERATION", help="Left to NCCL; repeatable. 1: all operations.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare what taken calls send and bring; slow.")] = False,
    debug: Annotated[str | None, typer.Option(metavar="LEVEL", help=", ".join(DEBUG_LEVELS))] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Settings; the environment wins.")] = None,
    nccl: Annotated[Path | None, typer.Option(metavar="PATH", help="The NCCL under Narrowcast: libnccl.so.2.")] = None,
    stats: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write what the traffic came to.")] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Serve /metrics while it runs; by default on 127.0.0.1.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No table at the end.")] = False,
) -> None:
    """Run a command, and all that it starts, with Narrowcast in place of NCCL; say at its end what that came to.

    Signals are passed on, and the exit status is the command's. The table goes to standard error.
    """
    address = None if prometheus is None else _address(prometheus)
    if stats is not None:
        # Before the command, not after it.
        check_writable(stats)
    settings = _settings_of(codec or [], take, attach, off or [], verify, debug, config)
    if nccl is not None:
        settings[nccl_search.SETTING] = str(nccl.absolute())
    for name in unknown(os.environ):
        warnings.warn(unknown_sentence(name), stacklevel=1)
    _warn_of_replaced()
    base = {**os.environ, **settings}
    # What still runs when the command has ended may be writing there.
    with tempfile.TemporaryDirectory(prefix="narrowcast-run-", ignore_cleanup_errors=True) as folder:
        environment = preload.environment(
            base,
            library=preload.drop_in(),
            nccl=preload.real_nccl(base),
            settings={
                "NARROWCAST_STATS": str(Path(folder) / f"{traffic.PID}.json"),
                "NARROWCAST_STATS_SECONDS": os.environ.get("NARROWCAST_STATS_SECONDS", str(REPORT_SECONDS)),
            },
        )
        reports = Path(folder)
        server = None
        if address is not None:
            server = MetricsServer(*address, lambda: metrics_text(traffic.read_folder(reports)))
        status = _run(command, environment, server)
        report = traffic.read_folder(reports)
    for fault in report.faults:
        warnings.warn(fault, stacklevel=1)
    if stats is not None:
        try:
            write_json({"command": command, "status": status, **report.as_json()}, stats)
        except OSError as error:
            # How the command ended counts for more.
            warnings.warn(f"--stats {stats} is not written: {error.strerror or error}", stacklevel=1)
    if not quiet:
        print_report(report)
    if status:
        raise typer.Exit(status)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadUse(f"--prometheus {text}: {port!r} is not a port")
    return host or _LOCAL, int(port)


def _settings_of(
    codec: list[str],
    take: str | None,
    attach: str | None,
    off: list[str],
    verify: bool,
    debug: str | None,
    config: Path | None,
) -> dict[str, str]:
    """The variables that the options stand for."""
    for one in codec:
        operation, _, name = one.rpartition("=")
        comm_codec_name(name)
        _check("--codec", operation or None, tuple(OPERATIONS))
    if _EVERYTHING in off and len(off) > 1:
        raise BadUse(f"--off {_EVERYTHING} is for all operations: it stands alone")
    for one in off:
        _check("--off", one, (*OPERATIONS, _EVERYTHING))
    _check("--take", take, TAKES)
    _check("--attach", attach, ATTACHES)
    _check("--debug", debug, (*DEBUG_LEVELS, *map(str.lower, DEBUG_LEVELS)))
    options = {
        "CODEC": ",".join(codec),
        "TAKE": take,
        "ATTACH": attach,
        "OFF": ",".join(off),
        "VERIFY": "1" if verify else None,
        "DEBUG": debug,
        "CONFIG": None if config is None else str(existing_file(config).absolute()),
    }
    return {f"{PREFIX}{name}": value for name, value in options.items() if value}


def _check(option: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise BadUse(f"{option} {value}: it is none of {', '.join(known)}")


def _warn_of_replaced() -> None:
    """What somebody has set and does not hold for the command."""
    if os.environ.get("NARROWCAST_STATS"):
        warnings.warn("NARROWCAST_STATS is not followed here: --stats names the file", stacklevel=2)
    for name in preload.PATH_VARIABLES:
        if os.environ.get(name):
            warnings.warn(f"{name} gives way to Narrowcast; --nccl {os.environ[name]} keeps that NCCL", stacklevel=2)


def _run(command: list[str], environment: dict[str, str], server: MetricsServer | None) -> int:
    if server is not None:
        server.start()
        print(f"narrowcast: metrics at {server.url}", file=sys.stderr, flush=True)
    try:
        return child.run(command, environment)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        if error.filename != command[0]:
            raise
        print(f"narrowcast: {command[0]}: {error.strerror}", file=sys.stderr)
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(child.NOT_FOUND if missing else child.NOT_EXECUTABLE) from None
    finally:
        if server is not None:
            server.close()
