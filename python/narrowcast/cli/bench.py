"""`bench`: collectives with nccl-tests' flags and columns, and the codecs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _operations, _samples
from .._launch import run_ranks
from ..comm import unique_id
from ..errors import InternalError
from ..types import REDUCTIONS, ValueType, value_type
from ._common import BadUse, DtypeOption, codec_name, comm_codec_name, existing_file, print_json, says_dtype, write_json

app = typer.Typer(no_args_is_help=False, help="Measure the codecs and the collectives.", rich_markup_mode=None)

_TIMEOUT_SECONDS = 60.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """nccl-tests' sizes: 64, 1K, 64M, 1G (powers of 1024)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadUse(f"{text!r} is not a size: give one such as 64, 1K, 64M or 1G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def sizes(begin: int, end: int, factor: float) -> Iterator[int]:
    """From begin to end, times the factor."""
    size = begin
    while size <= end:
        yield size
        size = max(size + 1, int(size * factor))


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")]
OutputOption = Annotated[
    Path | None, typer.Option("-J", "--output-file", metavar="FILE", help="Write the JSON to a file as well.")
]


def _collective(operation: str) -> Callable[..., None]:
    def run(
        begin: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="First size.")] = "64K",
        end: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Last size.")] = "16M",
        factor: Annotated[float, typer.Option("-f", "--stepfactor", help="From one size to the next.")] = 4,
        iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Timed runs.")] = 20,
        warmup: Annotated[int, typer.Option("-w", "--warmup-iters", "--warmup_iters", min=0)] = 5,
        check: Annotated[int, typer.Option("-c", "--check", min=0, max=1, help="Compare a run with NumPy.")] = 1,
        datatype: Annotated[str, typer.Option("-d", "--datatype", help="Value type.")] = "bfloat16",
        op: Annotated[str, typer.Option("-o", "--op", help="Reduction.")] = "sum",
        root: Annotated[int, typer.Option("-r", "--root", min=0, help="Of those that have one.")] = 0,
        ranks: Annotated[int, typer.Option("--ranks", min=1, max=64)] = 4,
        codec: Annotated[str, typer.Option(callback=comm_codec_name, help="window, raw or auto.")] = "window",
        data: Annotated[
            str, typer.Option(help=f"What the buffers hold: {', '.join(_samples.NAMES)}, or a file.")
        ] = "weights",
        backend: Annotated[str, typer.Option(help="host: processes of this machine.")] = "host",
        json: JsonOption = False,
        output_file: OutputOption = None,
    ) -> None:
        if backend != "host":
            raise BadUse(f"{backend!r} is not a backend (known: host)")
        if factor <= 1:
            raise BadUse(f"-f is {factor}: the sizes have to grow")
        try:
            kind = value_type(datatype)
            _samples.sample(data, kind.name)
        except ValueError as error:
            raise BadUse(str(error)) from None
        if op not in REDUCTIONS:
            raise BadUse(f"{op!r} is not a reduction (known: {', '.join(REDUCTIONS)})")
        if root >= ranks:
            raise BadUse(f"the root {root} is not one of {ranks} ranks")
        first, last = parse_size(begin), parse_size(end)
        if not 0 < first <= last:
            raise BadUse(f"the sizes from {begin} to {end} are none")
        counts = list(
            dict.fromkeys(_operations.count_of(operation, size, kind, ranks) for size in sizes(first, last, factor))
        )
        settings: dict[str, Any] = {
            "operation": operation,
            "dtype": kind.name,
            "data": data,
            "codec": codec,
            "op": op,
            "root": root,
            "iterations": iterations,
            "warmup": warmup,
        }
        _bench(settings, kind, counts, ranks, bool(check), json, output_file)

    run.__doc__ = f"Time {operation} over sizes, between processes of this machine."
    return run


for _name in _operations.NAMES:
    app.command(_name)(_collective(_name))


def _bench(
    settings: dict[str, Any],
    kind: ValueType,
    counts: list[int],
    ranks: int,
    check: bool,
    json: bool,
    output_file: Path | None,
) -> None:
    operation = settings["operation"]
    identity = unique_id().hex()
    arguments = [
        {
            **settings,
            "unique_id": identity,
            "rank": rank,
            "ranks": ranks,
            "counts": counts,
            "check": check,
            "timeout_seconds": _TIMEOUT_SECONDS,
        }
        for rank in range(ranks)
    ]
    rows: list[dict[str, Any]] = []

    def add(results: list[dict[str, Any]]) -> None:
        row = _row(settings, kind, ranks, results)
        rows.append(row)
        if not json:
            print(_line(row), flush=True)

    if not json:
        print(f"# {operation}, {ranks} ranks, backend host, codec {settings['codec']}, data {settings['data']}")
        print(f"# {settings['iterations']} runs, {settings['warmup']} before; out of place; bandwidths of raw bytes")
        print(_HEADER, flush=True)
    runs = settings["iterations"] + settings["warmup"] + 2
    run_ranks("narrowcast._rank_jobs:bench", arguments, add, timeout_seconds=_TIMEOUT_SECONDS * runs * len(counts))
    report = {**settings, "backend": "host", "ranks": ranks, "rows": rows}
    if json:
        print_json(report)
    elif rows:
        print(f"# average bus bandwidth: {sum(row['busbw_gb_per_s'] for row in rows) / len(rows):.3f} GB/s")
    if output_file is not None:
        write_json(report, output_file)
    wrong = sum(row["wrong"] or 0 for row in rows)
    if wrong:
        raise InternalError(f"{wrong} values of {operation} are wrong")


def _row(settings: dict[str, Any], kind: ValueType, ranks: int, results: list[dict[str, Any]]) -> dict[str, Any]:
    operation, count = settings["operation"], results[0]["count"]
    size = _operations.size_of(operation, count, kind, ranks)
    seconds = sum(result["seconds"] for result in results) / ranks
    raw_bytes = sum(result["raw_bytes"] for result in results)
    wire_bytes = sum(result["wire_bytes"] for result in results)
    algorithm = size / seconds / 1e9
    wrong = [result["wrong"] for result in results]
    return {
        "size_bytes": size,
        "count": count,
        "type": kind.name,
        "redop": settings["op"] if operation in _operations.REDUCTIONS else "none",
        "root": settings["root"] if operation in _operations.ROOTED else -1,
        "time_us": seconds * 1e6,
        "algbw_gb_per_s": algorithm,
        "busbw_gb_per_s": algorithm * _operations.bus_factor(operation, ranks),
        "wrong": None if None in wrong else sum(wrong),
        "ratio": wire_bytes / raw_bytes if raw_bytes else None,
        "raw_bytes": raw_bytes,
        "wire_bytes": wire_bytes,
    }


_HEADER = (
    f"#{'size':>11} {'count':>12} {'type':>12} {'redop':>6} {'root':>5} {'time':>10} {'algbw':>8} {'busbw':>8} "
    f"{'#wrong':>7} {'ratio':>7} {'wire':>12}\n"
    f"#{'(B)':>11} {'(elements)':>12} {'':>12} {'':>6} {'':>5} {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8} "
    f"{'':>7} {'':>7} {'(B)':>12}"
)


def _line(row: dict[str, Any]) -> str:
    wrong = "N/A" if row["wrong"] is None else str(row["wrong"])
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.4f}"
    return (
        f"{row['size_bytes']:>12} {row['count']:>12} {row['type']:>12} {row['redop']:>6} {row['root']:>5} "
        f"{row['time_us']:>10.1f} {row['algbw_gb_per_s']:>8.3f} {row['busbw_gb_per_s']:>8.3f} {wrong:>7} {ratio:>7} "
        f"{row['wire_bytes']:>12}"
    )


@app.command("codec")
def codec_command(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype.")],
    dtype: DtypeOption = None,
    codec: Annotated[str, typer.Option(callback=codec_name, help="window or raw.")] = "window",
    device: Annotated[str, typer.Option(help="host (one core) or cuda.")] = "host",
    tile: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Repeat every tensor to this size; by default 64M on the host, 1G on a GPU."),
    ] = None,
    ctas: Annotated[int, typer.Option(min=0, help="cuda: at most this many CTAs; 0: all that run at once.")] = 0,
    iterations: Annotated[
        int | None, typer.Option("-n", "--iters", min=1, help="Timed runs; by default 5 on the host, 20 on a GPU.")
    ] = None,
    json: JsonOption = False,
    output_file: OutputOption = None,
) -> None:
    """Time encode and decode of every tensor in GB/s of raw bytes, and compare what comes back, to the bit."""
    from . import bench_codec

    if device not in ("host", "cuda"):
        raise BadUse(f"{device!r} is not a device (known: host, cuda)")
    if ctas and device == "host":
        raise BadUse("--ctas is for --device cuda")
    tile_bytes = parse_size(tile or ("64M" if device == "host" else "1G"))
    if tile_bytes < 8:
        raise BadUse(f"--tile {tile} is less than a value")
    existing_file(source)
    with says_dtype():
        tensors = {name: entry for name, entry in _samples.tensors(source, dtype).items() if entry[1].size}
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
        raise InternalError(f"what came back differs for {', '.join(inexact)}")
