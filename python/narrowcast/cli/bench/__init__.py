"""`bench`: collectives, with the options and columns of nccl-tests, and codecs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..._bench import operations, samples
from ..._files.atomic import check_writable
from ...errors import InternalError
from .._commands import CommandGroup, new_group, print_help_without_command, single_command
from .._common import BadUse, DtypeOption, codec_name, dtype_errors_as_bad_use, existing_file, print_json, write_json
from .._provenance import command_line, commit, machine, processor
from .._sizes import parse_size
from .collectives import CollectiveCommand, collective
from .options import OutputFile


class _Benchmarks(CommandGroup):
    """Has a command for every operation of the library, which is loaded only when they are needed."""

    def command_names(self) -> list[str]:
        return [*operations.names(), "codec"]

    def load(self, name: str) -> Any:
        if name == "codec":
            return single_command(name, codec_command)
        return single_command(name, collective(name), cls=CollectiveCommand)


bench = new_group(None, _Benchmarks, "Measure the codecs and the collectives.")
bench.callback()(print_help_without_command)


def codec_command(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype.")],
    dtype: DtypeOption = None,
    codec: Annotated[str, typer.Option(callback=codec_name, help="A codec, such as raw or name:key=value.")] = "window",
    device: Annotated[str, typer.Option(help="host (one core) or cuda.")] = "host",
    tile: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Repeat every tensor to this size; default 64M on the host, 1G on a GPU."),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="cuda: divide every tensor into arrays of this size, and measure one batch against a call for each.",
        ),
    ] = None,
    ctas: Annotated[int, typer.Option(min=0, help="cuda: maximum number of CTAs; 0: as many as run at once.")] = 0,
    iterations: Annotated[
        int | None, typer.Option("-n", "--iters", min=1, help="Timed runs; default 5 on the host, 20 on a GPU.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    output_file: OutputFile = None,
) -> None:
    """Measure encode and decode of every tensor in GB/s of raw bytes, and verify all bits.

    With a lossy codec, values must be within its stated error: bound.
    """
    from . import codec as bench_codec

    if device not in ("host", "cuda"):
        raise BadUse(f"{device!r} is not a device (known: host, cuda)")
    if ctas and device == "host":
        raise BadUse("--ctas is for --device cuda")
    if array and device == "host":
        raise BadUse("--array is for --device cuda")
    array_bytes = parse_size(array) if array else 0
    tile_bytes = parse_size(tile or ("64M" if device == "host" else "1G"))
    if tile_bytes < 8:
        raise BadUse(f"--tile {tile} is smaller than one value")
    if array and array_bytes < 8:
        raise BadUse(f"--array {array} is smaller than one value")
    existing_file(source)
    if output_file is not None:
        # Fails before the work, not after it.
        check_writable(output_file)
    with dtype_errors_as_bad_use():
        tensors = {name: entry for name, entry in samples.tensors(source, dtype).items() if entry[1].size}
    if device == "host":
        report = bench_codec.on_host(tensors, codec, tile_bytes, iterations or 5, quiet=json)
    else:
        report = bench_codec.on_cuda(tensors, codec, tile_bytes, array_bytes, ctas, iterations or 20, quiet=json)
    where = processor() if device == "host" else machine()
    report = {"command": command_line(context), "commit": commit(), "machine": where, **report}
    if json:
        print_json(report)
    if output_file is not None:
        write_json(report, output_file)
    wrong = [row["tensor"] for row in report["rows"] if not row["correct"]]
    if wrong:
        raise InternalError(f"decoded values differ for {', '.join(wrong)}")
