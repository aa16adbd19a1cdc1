"""`encode`, `decode` and `inspect`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files.display import bytes_text, printable
from .._files.opening import FileArgument
from .._native.codecs import is_exact
from ..errors import CorruptError
from ..files import FileFrame, Progress, decode_file, encode_file, frames_of
from ._common import (
    STANDARD_STREAM,
    BadUse,
    DtypeOption,
    ForceOption,
    ReaderThreadsOption,
    WriterThreadsOption,
    dtype_errors_as_bad_use,
    error_text,
    file_bytes,
    file_codec_name,
    input_file,
    output_file,
    print_error,
    print_json,
    progress_bar,
    reject_existing,
)
from ._tables import Column, Table

#: Added by encode and removed by decode.
SUFFIX = ".ncast"

_OutputOption = Annotated[
    str | None, typer.Option("--output", "-o", metavar="OUT", help="The output of one input; -: standard output.")
]
_StdoutOption = Annotated[bool, typer.Option("--stdout", "-c", help="Write to standard output.")]
_QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


def encode(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype; -: standard input."),
    ],
    output: _OutputOption = None,
    stdout: _StdoutOption = False,
    force: ForceOption = False,
    quiet: _QuietOption = False,
    dtype: DtypeOption = None,
    codec: Annotated[
        str, typer.Option(callback=file_codec_name, help="A codec, or auto: the shortest for each tensor.")
    ] = "window",
    lossy: Annotated[bool, typer.Option("--lossy", help="Allow a lossy codec.")] = False,
    checksum: Annotated[bool, typer.Option(help="Put a checksum into every frame.")] = True,
    threads: WriterThreadsOption = None,
) -> None:
    """Encode files: FILE becomes FILE.ncast, and `decode` restores every byte.

    With --lossy, a lossy codec may change values, as `narrowcast error` shows.

    Inputs stay. An output appears only after everything has been written; one that exists is replaced with -f only.
    """
    if len(sources) > 1 and (stdout or output is not None):
        raise BadUse("an encoded file has one input: -o and -c accept one FILE")
    if not lossy and not is_exact(codec):
        raise BadUse(f"--codec {codec} changes values: --lossy allows that")

    def work(source: FileArgument, target: FileArgument, progress: Progress | None) -> str:
        with dtype_errors_as_bad_use():
            totals = encode_file(
                source,
                target,
                codec=codec,
                dtype=dtype,
                checksum=checksum,
                threads=threads,
                progress=progress,
                replace=force,
            )
        ratio = f", ratio {totals.wire_bytes / totals.raw_bytes:.4f}" if totals.raw_bytes else ""
        return f"{bytes_text(totals.raw_bytes)} -> {bytes_text(totals.wire_bytes)}{ratio}"

    _run("encode", sources, _target_of(output, stdout, lambda source: source + SUFFIX), force, quiet, work)


def decode(
    sources: Annotated[list[str], typer.Argument(metavar="FILE", help="Files that encode wrote; -: standard input.")],
    output: _OutputOption = None,
    stdout: _StdoutOption = False,
    force: ForceOption = False,
    quiet: _QuietOption = False,
    threads: WriterThreadsOption = None,
) -> None:
    """Decode files that `encode` wrote: FILE.ncast becomes FILE.

    Inputs stay. An output appears only after everything has been written; one that exists is replaced with -f only.
    """
    if len(sources) > 1 and output is not None:
        raise BadUse("-o accepts one FILE (-c writes the content of several to standard output)")

    def work(source: FileArgument, target: FileArgument, progress: Progress | None) -> str:
        totals = decode_file(source, target, threads=threads, progress=progress, replace=force)
        return f"{bytes_text(totals.wire_bytes)} -> {bytes_text(totals.raw_bytes)}"

    _run("decode", sources, _target_of(output, stdout, _without_suffix), force, quiet, work)


def _without_suffix(source: str) -> str:
    target = source.removesuffix(SUFFIX)
    if target == source or not Path(source).name.removesuffix(SUFFIX):
        raise BadUse(f"{source} does not end in {SUFFIX}: name the output with -o")
    return target


def _target_of(output: str | None, stdout: bool, own: Callable[[str], str]) -> Callable[[str], str]:
    """A function from the name of an input to the name of its output. own: of an input that has a name."""
    if stdout and output is not None:
        raise BadUse("-o and -c exclude each other")
    if stdout or output is not None:
        return lambda source: STANDARD_STREAM if output is None else output
    return lambda source: source if source == STANDARD_STREAM else own(source)


def _run(
    label: str,
    sources: list[str],
    target_of: Callable[[str], str],
    force: bool,
    quiet: bool,
    work: Callable[[FileArgument, FileArgument, Progress | None], str],
) -> None:
    """Codes every file. If there are several, an error does not keep the others from being coded.

    work: codes a file and returns the text of its summary.
    """
    failed = False
    for source in sources:
        try:
            read, target = input_file(source), target_of(source)
            written = output_file(target, source)
            reject_existing(written, force)
            with progress_bar(label, file_bytes(read), quiet) as progress:
                summary = work(read, written, progress)
        except BrokenPipeError:
            raise
        except Exception as error:
            text = error_text(error)
            if text is None or len(sources) == 1:
                raise
            print_error(text)
            failed = True
        else:
            if not quiet:
                _print_summary(source, target, summary)
    if failed:
        raise typer.Exit(1)


def _print_summary(source: str, target: str, sizes: str) -> None:
    """Prints a summary, to standard error if the data goes to standard output."""
    text = printable(f"{source} -> {target}: {sizes}")
    # Not an error if there is nobody to read it.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr if target == STANDARD_STREAM else sys.stdout)


def inspect(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file that encode wrote; -: standard input.")],
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one per frame.")] = False,
    threads: ReaderThreadsOption = None,
) -> None:
    """Show the frames of a file and verify their checksums. The exit status is 1 when a frame is corrupt."""
    frames: list[FileFrame] = []
    faults = []
    try:
        for frame in frames_of(input_file(source), threads=threads):
            frames.append(frame)
            faults += [frame.fault] if frame.fault else []
    except CorruptError as error:
        # The frames before the error are still shown.
        faults.append(str(error))
    if frames and json:
        print_json([_as_json(frame) for frame in frames])
    elif frames:
        _table(frames).print()
    if faults:
        raise CorruptError(faults[0] + (f"; {len(faults) - 1} more errors" if len(faults) > 1 else ""))


def _table(frames: list[FileFrame]) -> Table:
    has_tensors = any(frame.tensors for frame in frames)
    table = Table(
        Column("frame", is_number=True),
        Column("offset", is_number=True, rank=5),
        *([Column("tensors", folds=True)] if has_tensors else []),
        Column("values", is_number=True, rank=3),
        Column("type"),
        Column("codec", rank=2),
        Column("raw", is_number=True),
        Column("wire", is_number=True, rank=1),
        Column("ratio", is_number=True),
        Column("escapes", is_number=True, rank=4),
        Column("blocks of width", rank=7),
        Column("checksum", rank=6),
        Column("valid"),
    )
    for frame in frames:
        info, blocks = frame.info, frame.blocks
        table.add_row(
            str(frame.number),
            str(frame.offset),
            *([_tensors_text(frame.tensors)] if has_tensors else []),
            f"{info.elems:,}",
            info.dtype,
            info.codec,
            bytes_text(info.raw_bytes),
            bytes_text(info.wire_bytes),
            "-" if info.ratio is None else f"{info.ratio:.4f}",
            f"{100 * blocks.escapes / info.elems:.2f}%" if info.blocks and blocks else "-",
            widths_text(blocks.blocks_of_width) if info.blocks and blocks else "-",
            "-" if info.checksum is None else f"{info.checksum:016x}",
            "WRONG" if frame.fault else "yes",
        )
    return table


def _tensors_text(names: tuple[str, ...]) -> str:
    """The first name, and the number of the others."""
    others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return names[0] + others if names else "-"


def widths_text(widths: dict[int, int]) -> str:
    """{0: 1, 3: 42} -> "3: 42  raw: 1"."""
    ordered = sorted(widths.items(), key=lambda one: (one[0] == 0, one[0]))
    return "  ".join(f"{width or 'raw'}: {blocks}" for width, blocks in ordered) or "-"


def _as_json(frame: FileFrame) -> dict[str, Any]:
    info, blocks = asdict(frame.info), frame.blocks
    info["checksum"] = None if frame.info.checksum is None else f"{frame.info.checksum:016x}"
    return {
        "frame": frame.number,
        "tensors": frame.tensors,
        "offset": frame.offset,
        **info,
        "ratio": frame.info.ratio,
        "widths": blocks and {str(width): number for width, number in blocks.blocks_of_width.items()},
        "escapes": blocks and blocks.escapes,
        "far_escapes": blocks and blocks.far_escapes,
        "fault": frame.fault,
    }
