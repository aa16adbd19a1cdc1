"""`run`: runs a command with Narrowcast in place of NCCL and reports its traffic."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated

import typer

from .._dropin import child, nccl_search, policy, preload, traffic
from .._dropin.prometheus import MetricsServer
from .._dropin.prometheus import text as metrics_text
from .._files.atomic import check_writable
from .._files.display import printable
from .._native.codecs import split_operation
from .._native.operations import operations
from .._native.settings import ATTACHES, DEBUG_LEVELS, PREFIX, TAKES, unknown, unknown_message
from ._common import BadUse, comm_codec_name, existing_file, write_json
from .run_report import print_report

_EVERYTHING = "1"
# Interval of the reports of running processes, for Prometheus and for processes that are killed.
REPORT_SECONDS = 2
_LOCAL = "127.0.0.1"


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments.")],
    codec: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[OPERATION=]CODEC",
            help="auto or a codec that calls allow, for all operations or one; repeatable. CODEC! forces it.",
        ),
    ] = None,
    take: Annotated[
        str | None, typer.Option(metavar="WHEN", help="auto (if the cost model predicts a gain), always or never.")
    ] = None,
    attach: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="When Narrowcast attaches to a communicator: first (at its first collective) or init."
        ),
    ] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(metavar="OPERATION", help="Leave an operation to NCCL; repeatable. 1: all operations."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the results of calls with the values sent; slow.")
    ] = False,
    debug: Annotated[str | None, typer.Option(metavar="LEVEL", help=", ".join(DEBUG_LEVELS))] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings file; environment variables take precedence.")
    ] = None,
    nccl: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The libnccl.so.2 to which other calls are forwarded.")
    ] = None,
    stats: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write traffic statistics.")] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve /metrics while the command runs; HOST is 127.0.0.1 by default."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no table at the end.")] = False,
) -> None:
    """Run a command and its children with Narrowcast in place of NCCL, and report their traffic at the end.

    Signals are forwarded to the command, and its exit status is returned. The table is printed to standard error.
    """
    address = None if prometheus is None else _address(prometheus)
    if stats is not None:
        # Fails before the command starts, not after it.
        check_writable(stats)
    settings = _settings_of(codec or [], take, attach, off or [], verify, debug, config)
    if nccl is not None:
        settings[nccl_search.SETTING] = str(nccl.absolute())
    for name in unknown(os.environ):
        warnings.warn(unknown_message(name), stacklevel=1)
    _warn_of_replaced()
    base = {**os.environ, **settings}
    # Processes that outlive the command may still write there.
    with tempfile.TemporaryDirectory(prefix="narrowcast-run-", ignore_cleanup_errors=True) as folder:
        environment = preload.environment(
            base,
            library=preload.drop_in(),
            nccl=preload.real_nccl(base, nccl_search.SETTING if nccl is None else "--nccl"),
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
            # The exit status of the command matters more.
            warnings.warn(f"--stats {stats} could not be written: {error.strerror or error}", stacklevel=1)
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
    """The environment variables that the options set."""
    for one in codec:
        operation, name = split_operation(one)
        comm_codec_name(name)
        _check("--codec", operation, tuple(operations()))
    if _EVERYTHING in off and len(off) > 1:
        raise BadUse(f"--off {_EVERYTHING} covers all operations and cannot be combined with others")
    for one in off:
        _check("--off", one, (*operations(), _EVERYTHING))
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
        "CONFIG": None if config is None else str(checked_config(config, "--config")),
    }
    return {f"{PREFIX}{name}": value for name, value in options.items() if value}


def checked_config(path: Path, option: str) -> Path:
    """The absolute path, if the file has no error: the drop-in's warnings are easily missed among those of a job."""
    faults = policy.check(existing_file(path))["faults"]
    if faults:
        raise BadUse(f"{option} {path}: {'; '.join(faults)}")
    return path.absolute()


def _check(option: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise BadUse(f"{option} {value}: unknown value (known: {', '.join(known)})")


def _warn_of_replaced() -> None:
    """Warns about variables that this command overrides."""
    if os.environ.get("NARROWCAST_STATS"):
        warnings.warn("NARROWCAST_STATS is ignored: use --stats", stacklevel=2)
    for name in preload.PATH_VARIABLES:
        if os.environ.get(name):
            warnings.warn(f"{name} is overridden; --nccl {os.environ[name]} forwards to that NCCL", stacklevel=2)


def _run(command: list[str], environment: dict[str, str], server: MetricsServer | None) -> int:
    if server is not None:
        server.start()
        print(f"narrowcast: metrics at {server.url}", file=sys.stderr, flush=True)
    try:
        return child.run(command, environment)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        if error.filename != command[0]:
            raise
        print(printable(f"narrowcast: {command[0]}: {error.strerror}"), file=sys.stderr)
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(child.NOT_FOUND if missing else child.NOT_EXECUTABLE) from None
    finally:
        if server is not None:
            server.close()
