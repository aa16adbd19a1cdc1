"""`bench`: collectives, with the options and columns of nccl-tests, and codecs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..._bench import operations, samples
from ..._files.atomic import check_writable
from ...errors import InternalError
from .._common import BadUse, DtypeOption, codec_name, dtype_errors_as_bad_use, existing_file, print_json, write_json
from .collectives import CollectiveCommand, collective, parse_size
from .options import OutputFile


class Benchmarks(TyperGroup):
    """Has a command for every operation of the library, which is loaded only when they are needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*operations.names(), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in operations.names() else _operation_command(cmd_name)


def _operation_command(operation: str) -> Any:
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(operation, cls=CollectiveCommand)(collective(operation))
    return typer.main.get_command(single)


app = typer.Typer(
    cls=Benchmarks, no_args_is_help=False, help="Measure the codecs and the collectives.", rich_markup_mode=None
)


@app.command("codec")
def codec_command(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype.")],
    dtype: DtypeOption = None,
    codec: Annotated[str, typer.Option(callback=codec_name, help="A codec, such as raw or name:key=value.")] = "window",
    device: Annotated[str, typer.Option(help="host (one core) or cuda.")] = "host",
    tile: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Repeat every tensor to this size; default 64M on the host, 1G on a GPU."),
    ] = None,
    ctas: Annotated[int, typer.Option(min=0, help="cuda: maximum number of CTAs; 0: as many as run at once.")] = 0,
    iterations: Annotated[
        int | None, typer.Option("-n", "--iters", min=1, help="Timed runs; default 5 on the host, 20 on a GPU.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    output_file: OutputFile = None,
) -> None:
    """Measure encode and decode of every tensor in GB/s of raw bytes, and verify all bits."""
    from . import codec as bench_codec

    if device not in ("host", "cuda"):
        raise BadUse(f"{device!r} is not a device (known: host, cuda)")
    if ctas and device == "host":
        raise BadUse("--ctas is for --device cuda")
    tile_bytes = parse_size(tile or ("64M" if device == "host" else "1G"))
    if tile_bytes < 8:
        raise BadUse(f"--tile {tile} is smaller than one value")
    existing_file(source)
    if output_file is not None:
        # Fails before the work, not after it.
        check_writable(output_file)
    with dtype_errors_as_bad_use():
        tensors = {name: entry for name, entry in samples.tensors(source, dtype).items() if entry[1].size}
    if device == "host":
        report = bench_codec.on_host(tensors, codec, tile_bytes, iterations or 5, quiet=json)
    else:
        report = bench_codec.on_cuda(tensors, codec, tile_bytes, ctas, iterations or 20, quiet=json)
    if json:
        print_json(report)
    if output_file is not None:
        write_json(report, output_file)
    inexact = [row["tensor"] for row in report["rows"] if not row["exact"]]
    if inexact:
        raise InternalError(f"decoded values differ for {', '.join(inexact)}")
