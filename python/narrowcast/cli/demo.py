"""`demo`: runs every collective on real tensors, raw and compressed, and verifies all bits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .._bench import samples
from .._bench.launch import run_ranks
from .._files.display import bytes_text
from ..comm import unique_id
from ..cuda import device_count
from ._tables import Column, Table, print_wrapped

# Operation, packaged tensor, reduction: typical combinations in training and inference.
_CASES = (
    ("sendrecv", "kv_bf16", "none"),
    ("broadcast", "weights_bf16", "none"),
    ("reduce", "grads_bf16", "sum"),
    ("gather", "weights_bf16", "none"),
    ("scatter", "weights_bf16", "none"),
    ("all_gather", "weights_bf16", "none"),
    ("all_gather", "weights_fp32", "none"),
    ("all_to_all", "kv_bf16", "none"),
    ("all_to_all", "kv_fp16", "none"),
    ("all_to_all_v", "kv_bf16", "none"),
    ("reduce_scatter", "grads_bf16", "sum"),
    ("reduce_scatter", "grads_fp32", "avg"),
    ("all_reduce", "tp_partial_bf16", "sum"),
    ("all_reduce", "grads_bf16", "avg"),
    ("all_reduce", "kv_fp16", "max"),
)
_CODECS = ("raw", "window")
_TIMEOUT_SECONDS = 60.0


def demo(
    ranks: Annotated[int, typer.Option(min=1, max=64, help="Processes on this machine.")] = 4,
    repetitions: Annotated[int, typer.Option("-n", min=1, help="Runs of each call; the time is the median.")] = 3,
) -> None:
    """Run every collective on real tensors, raw and compressed, and verify all bits of the results."""
    cases = [(*case, codec) for case in _CASES for codec in _CODECS]
    table = Table(
        Column("operation", folds=True),
        Column("tensor"),
        Column("type"),
        Column("codec"),
        Column("raw bytes", is_number=True, rank=1),
        Column("wire bytes", is_number=True, rank=3),
        Column("ratio", is_number=True),
        Column("time", is_number=True),
        Column("exact", is_number=True),
        title=f"{ranks} ranks on this machine, host backend; bytes summed over all ranks",
    )
    kinds = {name: kind.name for name, (kind, _) in samples.packaged().items()}
    wrong = 0

    def add(results: list[dict[str, Any]]) -> None:
        nonlocal wrong
        operation, tensor, op, codec = cases[table.row_count]
        wrong_here = sum(result["wrong"] for result in results)
        wrong += wrong_here
        raw_bytes = sum(result["raw_bytes"] for result in results)
        wire_bytes = sum(result["wire_bytes"] for result in results)
        table.add_row(
            operation if op == "none" else f"{operation} ({op})",
            tensor.rsplit("_", 1)[0],
            kinds[tensor],
            codec,
            f"{raw_bytes:,}",
            f"{wire_bytes:,}",
            f"{wire_bytes / raw_bytes:.3f}" if raw_bytes else "-",
            f"{1e3 * max(result['seconds'] for result in results):.1f} ms",
            "yes" if not wrong_here else f"NO: {wrong_here:,} wrong",
            end_section=codec == _CODECS[-1],
        )

    identity = unique_id(local=True).hex()
    arguments = [
        {
            "unique_id": identity,
            "rank": rank,
            "ranks": ranks,
            "cases": cases,
            "repetitions": repetitions,
            "timeout_seconds": _TIMEOUT_SECONDS,
        }
        for rank in range(ranks)
    ]
    run_ranks("narrowcast._bench.host_ranks:demo", arguments, add, timeout_seconds=10 * _TIMEOUT_SECONDS)
    table.print()
    shipped = sum(raw.size for _, raw in samples.packaged().values())
    print_wrapped(
        f"Tensors from training and inference of a Llama, {bytes_text(shipped)}. Results are compared with NumPy."
    )
    wrong += _demo_cuda() if device_count() else _no_cuda()
    if wrong:
        print_wrapped("NOT EXACT: the tables show where values are wrong.")
        raise typer.Exit(1)
    print_wrapped("Exact: all results are identical to the last bit.")


def _no_cuda() -> int:
    print_wrapped("No CUDA GPU found: the codecs were not run on a GPU.")
    return 0


def _demo_cuda() -> int:
    from .._bench.codec_speed import measure
    from .._native.cuda_driver import device_name

    table = Table(
        "tensor",
        "type",
        *(Column(name, is_number=True) for name in ("ratio", "encode GB/s", "decode GB/s", "exact")),
        title=f"{device_name()}, in GPU memory, tensors tiled to 256 MiB; GB/s of raw bytes",
    )
    wrong = 0  # tensors
    for name, (kind, raw) in samples.packaged().items():
        row = measure(raw, kind, 256 << 20)
        wrong += not row.exact
        table.add_row(
            name,
            kind.name,
            f"{row.ratio:.3f}",
            f"{row.encode_gb_per_s:.0f}",
            f"{row.decode_gb_per_s:.0f}",
            "yes" if row.exact else "NO",
        )
    table.print()
    return wrong
