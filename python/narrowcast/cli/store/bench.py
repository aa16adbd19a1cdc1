"""`store bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ..._bench import samples
from ..._bench.store_speed import measure
from ..._files.atomic import check_writable
from ..._files.display import bytes_text, printable
from ..._native.library import library_version
from ..._native.store_structures import STORE_LAYOUTS
from ...errors import InternalError, UnsupportedError
from ...types import ValueType, value_type
from .._common import BadUse, DtypeOption, dtype_errors_as_bad_use, existing_file, print_json, write_json
from .._provenance import command_line, commit, machine, processor
from .._sizes import parse_size, parse_sizes
from ..bench.options import OutputFile

Tensors = dict[str, tuple[ValueType, npt.NDArray[np.uint8]]]

_LINE = "{:20} {:11} {:>6} {:>7} {:14} {:7} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9} {:>5}"


def bench(
    context: typer.Context,
    source: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="safetensors or npy; default: tensors of the package.")
    ] = None,
    dtype: DtypeOption = None,
    tensor: Annotated[
        str | None,
        typer.Option(help=f"Only this tensor; without a file, also: {', '.join(samples.SYNTHETIC)}."),
    ] = None,
    row_bytes: Annotated[str, typer.Option(metavar="SIZES", help="Bytes of a row, separated by commas.")] = "512,2K",
    table: Annotated[str, typer.Option(metavar="SIZE", help="The tensor is repeated to this size.")] = "256M",
    rows: Annotated[int, typer.Option(min=1, help="Rows of a gather.")] = 100_000,
    codec: Annotated[str, typer.Option(help="A row codec, such as window.")] = "auto",
    layout: Annotated[str, typer.Option(help=f"One of {', '.join(STORE_LAYOUTS)}.")] = "auto",
    threads: Annotated[
        str | None,
        typer.Option(help="host: numbers of threads, separated by commas; 0: as many as CPUs. Default: 1,0."),
    ] = None,
    device: Annotated[str, typer.Option(help="host or cuda.")] = "host",
    sms: Annotated[
        str | None, typer.Option(help="cuda: numbers of SMs that calls may use, separated by commas. Default: 4.")
    ] = None,
    zipf: Annotated[float, typer.Option(min=0, help="cuda: draw rows by Zipf's law; 0: uniformly.")] = 0,
    cache: Annotated[
        float,
        typer.Option(min=0, max=100, metavar="PERCENT", help="cuda: also with caches of this size."),
    ] = 0,
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Timed runs.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    output_file: OutputFile = None,
) -> None:
    """Measure the store in GB/s of raw bytes, and compare its rows.

    On the host: build, encode (without a file), gather, fetch and update, next to numpy.take. On a GPU: gather and
    fetch, next to the same rows stored raw, to copies by the copy engine, torch.index_select from host memory, with
    indices as they are and sorted, and gathers of raw rows by the CPUs that are then copied; encode, from page-locked
    memory, next to all CPUs.
    """
    if device not in ("host", "cuda"):
        raise BadUse(f"{device!r} is not a device (known: host, cuda)")
    others = {"--threads": threads} if device == "cuda" else {"--sms": sms, "--zipf": zipf, "--cache": cache}
    for option, value in others.items():
        if value:
            raise BadUse(f"{option} is for --device {'host' if device == 'cuda' else 'cuda'}")
    if layout not in STORE_LAYOUTS:
        raise BadUse(f"{layout!r} is not a layout (known: {', '.join(STORE_LAYOUTS)})")
    thread_counts = _numbers(threads or "1,0", "--threads", 0)
    sm_counts = _numbers(sms or "4", "--sms", 1)
    sizes = parse_sizes(row_bytes)
    table_bytes = parse_size(table)
    if output_file is not None:
        check_writable(output_file)
    with dtype_errors_as_bad_use():
        tensors = _samples(tensor, dtype) if source is None else samples.tensors(existing_file(source), dtype)
    chosen = {name: entry for name, entry in tensors.items() if entry[1].size and tensor in (None, name)}
    if not chosen:
        if tensor is None:
            raise BadUse(f"{source} has no values")
        raise BadUse(f"there is no tensor {tensor!r} (known: {', '.join(tensors)})")
    for kind, _ in chosen.values():
        for size in sizes:
            _check_row_bytes(size, kind, table_bytes)
    common: dict[str, Any] = {
        "quiet": json,
        "table_bytes": table_bytes,
        "gathered_rows": rows,
        "codec": codec,
        "layout": layout,
        "iterations": iterations,
    }
    if device == "cuda":
        report = _on_gpu(chosen, sizes, **common, sms=sm_counts, zipf=zipf, cache_percent=cache)
    else:
        report = _on_host(chosen, sizes, thread_counts, **common)
    _finish(command_line(context), report, json, output_file)


def _samples(tensor: str | None, dtype: str | None) -> Tensors:
    """The tensors of the package, or a synthetic one, of bfloat16 if no type is given."""
    if tensor not in samples.SYNTHETIC:
        if dtype is not None:
            raise BadUse(f"--dtype is for files, and for {', '.join(samples.SYNTHETIC)}: other tensors have types")
        return samples.packaged()
    kind = value_type(dtype or "bfloat16")
    return {tensor: (kind, samples.sample(tensor, kind.name).view(np.uint8))}


def _numbers(text: str, option: str, least: int) -> list[int]:
    try:
        numbers = [int(one) for one in text.split(",")]
    except ValueError:
        raise BadUse(f"{option} {text} is not a list of numbers") from None
    if min(numbers) < least:
        raise BadUse(f"{option} must {'be positive' if least else 'not be negative'}")
    return numbers


def _check_row_bytes(size: int, kind: ValueType, table_bytes: int) -> None:
    if not size or size % kind.bytes:
        raise BadUse(f"--row-bytes {size} is not a whole number of {kind.name} values")
    if size > table_bytes:
        raise BadUse(f"--row-bytes {size} is more than the {table_bytes} bytes of --table")


def _on_host(
    tensors: Tensors,
    sizes: list[int],
    thread_counts: list[int],
    *,
    quiet: bool,
    table_bytes: int,
    iterations: int,
    **options: Any,
) -> dict[str, Any]:
    """The report of the CPUs. Prints a line for each measurement unless `quiet`."""
    heading = ("tensor", "type", "row", "threads", "codec", "layout", "ratio")
    if not quiet:
        tables = bytes_text(table_bytes)
        print(f"# on {processor()}; GB/s of raw bytes, medians of {iterations}; tables of {tables}")
        print(_LINE.format(*heading, "build", "encode", "gather", "take", "fetch", "updates/s", "exact"), flush=True)
    results: list[dict[str, Any]] = []
    for name, (kind, raw) in tensors.items():
        for size in sizes:
            for count in thread_counts:
                result = measure(
                    raw, kind, size, table_bytes=table_bytes, threads=count, iterations=iterations, **options
                )
                results.append({"tensor": name, "dtype": kind.name, **result})
                if not quiet:
                    _print_row(results[-1])
    return {
        "machine": processor(),
        "version": library_version(),
        "table_bytes": table_bytes,
        "gathered_rows": options["gathered_rows"],
        "iterations": iterations,
        "rows": results,
    }


def _on_gpu(
    tensors: Tensors, sizes: list[int], *, quiet: bool, table_bytes: int, iterations: int, **options: Any
) -> dict[str, Any]:
    """The report of a GPU. Prints a line for each measurement unless `quiet`."""
    from ..._bench import store_gpu_speed
    from ..._native import cuda_driver
    from ...cuda import device_count

    if not device_count():
        raise UnsupportedError("--device cuda needs a CUDA GPU, but none was found")
    results = []
    if not quiet:
        print(f"# on {cuda_driver.device_name()}; GB/s of raw bytes, medians of {iterations}")
    with cuda_driver.on_device(0):
        for name, (kind, raw) in tensors.items():
            for size in sizes:
                result = store_gpu_speed.measure(
                    raw, kind, size, table_bytes=table_bytes, iterations=iterations, **options
                )
                results.append({"tensor": name, "dtype": kind.name, **result})
                if not quiet:
                    _print_gpu_rows(results[-1])
    return {
        "machine": machine(),
        "host": processor(),
        "version": library_version(),
        "table_bytes": table_bytes,
        "gathered_rows": options["gathered_rows"],
        "iterations": iterations,
        "rows": results,
    }


def _print_gpu_rows(row: dict[str, Any]) -> None:
    exact = "" if row["exact"] else ", NOT EXACT"
    table = f"rows of {row['row_bytes']}, {row['codec']}, {row['layout']}"
    print(f"{printable(row['tensor'])} {row['dtype']}, {table}{exact}")
    print(f"  ratio {row['ratio']:.4f}; for comparison:", end="")
    for name in (
        "copy",
        "copy_4_mib",
        "copy_4_mib_in_a_row",
        "index_select",
        "index_select_sorted",
        "host_gather_and_copy",
    ):
        speed = row[f"{name}_gb_per_s"]
        print(f" {name.replace('_', ' ')} {'-' if speed is None else f'{speed:.1f}'}", end="")
    print(f"\n  encode {row['encode_gb_per_s']:.1f}; on CPUs {row['encode_on_cpus_gb_per_s']:.1f}")
    for speeds in row["speeds"]:
        shown = [
            f"{name.removesuffix('_gb_per_s').replace('_', ' ')} {speed:.1f}"
            for name, speed in speeds.items()
            if name.endswith("_gb_per_s")
        ]
        print(f"  {speeds['sms']} SMs: {', '.join(shown)}")
        for kind in ("cached", "raw_cached"):
            for one in speeds.get(kind, []):
                print(
                    f"    {kind.replace('_', ' ')}, {one['policy']}: {one['gather_gb_per_s']:.1f}, "
                    f"{100 * one['hit_rate']:.1f}% hits, {one['capacity']} rows in {one['bytes']} bytes"
                )


def _finish(command: str, report: dict[str, Any], json: bool, output_file: Path | None) -> None:
    report = {"command": command, "commit": commit(), **report}
    if json:
        print_json(report)
    if output_file is not None:
        write_json(report, output_file)
    inexact = [row["tensor"] for row in report["rows"] if not row["exact"]]
    if inexact:
        raise InternalError(f"decoded rows differ for {', '.join(inexact)}")


def _print_row(row: dict[str, Any]) -> None:
    speeds = [f"{row[f'{name}_gb_per_s']:.2f}" for name in ("build", "encode", "gather", "numpy_take", "fetch")]
    print(
        _LINE.format(
            printable(row["tensor"]),
            row["dtype"],
            row["row_bytes"],
            row["threads"],
            row["codec"],
            row["layout"],
            f"{row['ratio']:.4f}",
            *speeds,
            f"{row['updates_per_s']:.0f}" if "updates_per_s" in row else "-",
            "yes" if row["exact"] else "NO",
        ),
        flush=True,
    )
