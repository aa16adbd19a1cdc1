"""The command line. Exit status: 0, 1 after a failure, 2 for invalid arguments. An error is one line."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, Any, TextIO

import typer

from .._files.display import printable
from .._native import library
from ._commands import CommandGroup, new_group, print_help_without_command, single_command
from ._common import error_text, print_error
from ._terminal import replace_closed_streams

#: Command -> module and function.
COMMANDS = {
    "encode": ("files", "encode"),
    "decode": ("files", "decode"),
    "inspect": ("files", "inspect"),
    "ratio": ("ratio", "ratio"),
    "error": ("error", "error"),
    "explain": ("explain", "explain"),
    "tune": ("tune", "tune"),
    "demo": ("demo", "demo"),
    "doctor": ("doctor", "doctor"),
    "run": ("run", "run"),
    "try": ("try_", "try_"),
    "bench": ("bench", "bench"),
    "plan": ("plan", "plan"),
    "policy": ("policy", "policy"),
    "codec": ("codec", "codec"),
    "store": ("store", "store"),
}
# Options after their argument belong to that command.
_RUN_OTHERS = ("doctor", "run", "try")
# Rows of large files are many objects without cycles: fewer collections halve the time for 100,000 tensors.
_GC_THRESHOLD = 100_000


class _Commands(CommandGroup):
    def command_names(self) -> list[str]:
        return list(COMMANDS)

    def load(self, name: str) -> Any:
        module, function = COMMANDS[name]
        found = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        return single_command(name, found, interspersed=name not in _RUN_OTHERS)


app = new_group(
    "narrowcast", _Commands, "GPU collective communication with compression: codecs, collectives, measurements."
)


class Stopped(BaseException):
    """A signal to terminate, as an exception, so that partial files are removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _version(requested: bool) -> None:
    if requested:
        print(f"narrowcast {library.library_version()}")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    print_help_without_command(context)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    replace_closed_streams()
    gc.set_threshold(_GC_THRESHOLD)
    warnings.showwarning = _show_warning
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # Signals that were ignored at the start (nohup) stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    status = 0
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except Stopped as stopped:
        return 128 + stopped.number
    except OSError as error:
        # Nothing can be flushed there when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not status and not isinstance(error, BrokenPipeError):
            return _fail(f"standard output: {error.strerror}")
        return status or 1


def _run(arguments: list[str] | None) -> int:
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="narrowcast", standalone_mode=False)
    except BrokenPipeError:
        raise
    except Exception as error:
        # BadUse, and errors of typer, whose class depends on its version.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _fail(error.format_message(), int(error.exit_code))
        if (text := error_text(error)) is not None:
            return _fail(text)
        if os.environ.get("NARROWCAST_TRACEBACK") == "1":
            raise
        return _fail(f"internal error, {type(error).__name__}: {error} (NARROWCAST_TRACEBACK=1 prints a traceback)")
    return int(result or 0)


def _fail(message: str, status: int = 1) -> int:
    print_error(message)
    return status


def _stop(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"narrowcast: warning: {printable(str(message))}", file=sys.stderr)
