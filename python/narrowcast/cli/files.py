"""`encode`, `decode` and `inspect`."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from .._files.display import bytes_text, printable
from ..errors import CorruptError
from ..files import FileFrame, decode_file, encode_file, frames_of
from ._common import (
    STANDARD_STREAM,
    DtypeOption,
    ReaderThreadsOption,
    WriterThreadsOption,
    codec_name,
    dtype_errors_as_bad_use,
    file_bytes,
    input_file,
    output_file,
    print_json,
    progress_bar,
)
from ._tables import Column, Table

_Output = Annotated[
    str,
    typer.Argument(metavar="OUT", help="Replaced only after everything has been written; -: standard output."),
]


def encode(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="safetensors, npy, or plain values with --dtype; -: standard input.")
    ],
    target: _Output,
    dtype: DtypeOption = None,
    codec: Annotated[str, typer.Option(callback=codec_name, help="A codec, such as raw or name:key=value.")] = "window",
    checksum: Annotated[bool, typer.Option(help="Put a checksum into every frame.")] = True,
    threads: WriterThreadsOption = None,
) -> None:
    """Encode a file without loss: `decode` restores every byte."""
    read, written = input_file(source), output_file(target, source)
    with dtype_errors_as_bad_use(), progress_bar("encode", file_bytes(read)) as progress:
        totals = encode_file(
            read, written, codec=codec, dtype=dtype, checksum=checksum, threads=threads, progress=progress
        )
    ratio = f", ratio {totals.wire_bytes / totals.raw_bytes:.4f}" if totals.raw_bytes else ""
    _print_summary(source, target, f"{bytes_text(totals.raw_bytes)} -> {bytes_text(totals.wire_bytes)}{ratio}")


def decode(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file that encode wrote; -: standard input.")],
    target: _Output,
    threads: WriterThreadsOption = None,
) -> None:
    """Decode a file that `encode` wrote."""
    read, written = input_file(source), output_file(target, source)
    with progress_bar("decode", file_bytes(read)) as progress:
        totals = decode_file(read, written, threads=threads, progress=progress)
    _print_summary(source, target, f"{bytes_text(totals.wire_bytes)} -> {bytes_text(totals.raw_bytes)}")


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
