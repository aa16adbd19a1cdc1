"""Shared by the commands: options, arguments, progress, tables, JSON."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files.atomic import check_writable, write_file
from .._files.display import printable
from .._files.opening import FileArgument
from .._files.segment import StatedTypeError, UnknownValuesError
from .._native.codecs import codec_number, comm_codec_number, file_codecs
from .._native.structures import BACKENDS
from ..errors import NarrowcastError
from ..types import REDUCTIONS, reduction_number, value_type


class BadUse(Exception):
    """Invalid arguments: exit status 2. Has the interface of typer's own errors."""

    exit_code = 2

    def format_message(self) -> str:
        return str(self)


# Callbacks of options: they check a name. None is accepted for options without a default.


def dtype_name(name: str | None) -> str | None:
    """The name of a value type, for one of its names."""
    return None if name is None else _checked(name, value_type).name


def codec_name(name: str) -> str:
    """Checks the text of a codec."""
    _checked(name, codec_number)
    return name


def file_codec_name(name: str) -> str:
    """As codec_name, for encoded files, which accept "auto" too."""
    _checked(name, file_codecs)
    return name


def comm_codec_name(name: str) -> str:
    """As codec_name, for the calls of a communicator, which accept "auto" too."""
    _checked(name, comm_codec_number)
    return name


def reduction_name(name: str) -> str:
    """Checks the name of a reduction."""
    _checked(name, reduction_number)
    return name


def backend_name(name: str | None) -> str | None:
    """Checks the name of a backend."""
    if name is not None and name not in BACKENDS:
        raise BadUse(f"{name!r} is not a backend (known: {', '.join(BACKENDS)})")
    return name


def _checked(name: str, found: Callable[[str], Any]) -> Any:
    try:
        return found(name)
    except ValueError as error:
        raise BadUse(str(error)) from None


# Options of commands that make calls.
TypeOption = Annotated[str, typer.Option("-d", "--dtype", callback=dtype_name, help="Value type.")]
ReductionOption = Annotated[
    str, typer.Option("--op", callback=reduction_name, help=f"Reduction: {', '.join(REDUCTIONS)}.")
]

# Of commands for files.
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        callback=dtype_name,
        help="Value type of a plain file, such as bfloat16 (uint8: plain bytes), or of an npy file without one.",
    ),
]
WriterThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads that code values. Default: the number of CPUs, up to 4.")
]
ReaderThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads that code values. Default: the number of CPUs, up to 16."),
]


def existing_file(path: Path) -> Path:
    """The path, if it is an existing file. Raises OSError otherwise."""
    if path.is_dir():
        raise IsADirectoryError(21, os.strerror(21), str(path))
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    if not path.is_file():
        # The size must be known before reading.
        raise OSError(f"{path} is not a regular file")
    return path


#: Stands for standard input or standard output.
STANDARD_STREAM = "-"


def input_file(name: str) -> FileArgument:
    """Standard input for "-", else the path of an existing file."""
    return sys.stdin.buffer if name == STANDARD_STREAM else existing_file(Path(name))


def output_file(name: str, *sources: str) -> FileArgument:
    """Standard output for "-", else a path. BadUse when it is one of the inputs, or a terminal."""
    if name == STANDARD_STREAM:
        if sys.stdout.isatty():
            raise BadUse("standard output is a terminal: redirect it, or name a file")
        return sys.stdout.buffer
    path = Path(name)
    for source in sources:
        if source != STANDARD_STREAM and path.exists() and Path(source).exists() and path.samefile(source):
            raise BadUse(f"{name} is the input: give another name for the output")
    return path


def plot_file(path: Path, *sources: str) -> None:
    """Checks the path of a plot, and that plots can be drawn: before the work, not after it."""
    from .. import plots

    plots.require()
    if path.suffix not in plots.FORMATS:
        raise BadUse(f"{path} must end in one of {', '.join(plots.FORMATS)}")
    output_file(str(path), *sources)
    check_writable(path)


ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Replace existing outputs.")]


def reject_existing(target: FileArgument, force: bool) -> None:
    """Raises FileExistsError if an output is a file that exists and may not be replaced."""
    if isinstance(target, Path) and target.is_file() and not force:
        raise FileExistsError(errno.EEXIST, "exists already (-f replaces it)", str(target))


def file_bytes(source: FileArgument) -> int | None:
    """The size of a file, for a progress bar; None for standard input."""
    return source.stat().st_size if isinstance(source, Path) else None


@contextlib.contextmanager
def dtype_errors_as_bad_use() -> Iterator[None]:
    """Reports a missing or wrong --dtype as invalid arguments."""
    try:
        yield
    except UnknownValuesError as error:
        raise BadUse(str(error)) from None
    except StatedTypeError as error:
        raise BadUse(f"{error}: omit --dtype") from None


@contextlib.contextmanager
def progress_bar(label: str, total_bytes: int | None, quiet: bool = False) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on standard error, if that is a terminal. Yields a function that takes the bytes of each step."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from ._progress import Progress

    with Progress() as bar:
        task = bar.add_task(label, total=total_bytes)
        yield lambda count: bar.advance(task, count)


def error_text(error: BaseException) -> str | None:
    """The message of an error of the library or the operating system; None for other exceptions."""
    if isinstance(error, OSError) and not isinstance(error, NarrowcastError):
        text = error.strerror or str(error)
        return f"{error.filename}: {text}" if error.filename and error.strerror else text
    if isinstance(error, MemoryError):
        return "out of memory"
    return str(error) if isinstance(error, (NarrowcastError, BadUse)) else None


def print_error(message: str) -> None:
    """Prints a message as one line."""
    print(f"narrowcast: {printable(' '.join(message.split()))}", file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def write_json(value: Any, path: Path) -> None:
    write_file(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
