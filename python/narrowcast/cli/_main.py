"""The command line. Exit status: 0, 1 after a failure, 2 for invalid arguments. An error is one line."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, TextIO

import typer

from .._native import library
from ..errors import NarrowcastError
from . import bench, demo, doctor, explain, files, ratio, run, tune
from ._terminal import printable, replace_closed_streams

app = typer.Typer(
    name="narrowcast",
    help="GPU collective communication with compression: codecs, collectives, measurements.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("encode")(files.encode)
app.command("decode")(files.decode)
app.command("inspect")(files.inspect)
app.command("ratio")(ratio.ratio)
app.command("explain")(explain.explain)
app.command("tune")(tune.tune)
app.command("demo")(demo.demo)
# Options after the command belong to the command.
app.command("doctor", context_settings={"allow_interspersed_args": False})(doctor.doctor)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.add_typer(bench.app, name="bench")


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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    replace_closed_streams()
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
    except NarrowcastError as error:
        return _fail(str(error))
    except OSError as error:
        if error.filename and error.strerror:
            return _fail(f"{error.filename}: {error.strerror}")
        return _fail(error.strerror or str(error))
    except MemoryError:
        return _fail("out of memory")
    except Exception as error:
        # BadUse, and errors of typer, whose class depends on its version.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _fail(error.format_message(), int(error.exit_code))
        if os.environ.get("NARROWCAST_TRACEBACK"):
            raise
        return _fail(f"internal error, {type(error).__name__}: {error} (NARROWCAST_TRACEBACK=1 prints a traceback)")
    return int(result or 0)


def _fail(message: str, status: int = 1) -> int:
    print(f"narrowcast: {printable(' '.join(message.split()))}", file=sys.stderr)
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
