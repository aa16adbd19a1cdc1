"""`demo`: runs every collective on real tensors, raw and compressed, and verifies the results."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .._bench import samples
from .._bench.launch import run_ranks
from .._bench.tolerance import is_exact
from .._files.display import bytes_text
from .._native.codecs import is_exact as is_exact_codec
from ..comm import unique_id
from ..cuda import device_count
from ._common import codec_name
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
_CODECS = ["raw", "window"]
_TIMEOUT_SECONDS = 60.0


def demo(
    ranks: Annotated[int, typer.Option(min=1, max=64, help="Processes on this machine.")] = 4,
    repetitions: Annotated[int, typer.Option("-n", min=1, help="Runs of each call; the time is the median.")] = 3,
    codec: Annotated[list[str] | None, typer.Option(help="Repeatable. Default: raw, window.")] = None,
) -> None:
    """Run every collective on real tensors, raw and compressed, and verify all bits of the results.

    With a lossy codec, results must be within the error bound of the call, and those of "max" are left out.
    """
    codecs = [codec_name(name) for name in codec or _CODECS]
    cases = [(*case, name) for case in _CASES for name in codecs if case[2] != "max" or is_exact_codec(name)]
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
    kinds = {name: kind for name, (kind, _) in samples.packaged().items()}
    wrong = 0

    def add(results: list[dict[str, Any]]) -> None:
        nonlocal wrong
        operation, tensor, op, name = cases[table.row_count]
        wrong_here = sum(result["wrong"] for result in results)
        wrong += wrong_here
        raw_bytes = sum(result["raw_bytes"] for result in results)
        wire_bytes = sum(result["wire_bytes"] for result in results)
        table.add_row(
            operation if op == "none" else f"{operation} ({op})",
            tensor.rsplit("_", 1)[0],
            kinds[tensor].name,
            name,
            f"{raw_bytes:,}",
            f"{wire_bytes:,}",
            f"{wire_bytes / raw_bytes:.3f}" if raw_bytes else "-",
            f"{1e3 * max(result['seconds'] for result in results):.1f} ms",
            f"NO: {wrong_here:,} wrong" if wrong_here else "yes" if is_exact(name, kinds[tensor]) else "within bound",
            end_section=name == codecs[-1],
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
    wrong += _demo_cuda(codecs) if device_count() else _no_cuda()
    if wrong:
        print_wrapped("NOT EXACT: the tables show where values are wrong.")
        raise typer.Exit(1)
    if all(is_exact(name, kind) for name in codecs for kind in kinds.values()):
        print_wrapped("Exact: all results are identical to the last bit.")
    else:
        print_wrapped(
            "All results of exact codecs are identical to the last bit, and the others are within their bounds."
        )


def _no_cuda() -> int:
    print_wrapped("No CUDA GPU found: the codecs were not run on a GPU.")
    return 0


def _demo_cuda(codecs: list[str]) -> int:
    from .._bench.codec_speed import measure
    from .._native.cuda_driver import device_name

    table = Table(
        "tensor",
        "type",
        "codec",
        *(Column(name, is_number=True) for name in ("ratio", "encode GB/s", "decode GB/s", "exact")),
        title=f"{device_name()}, in GPU memory, tensors tiled to 256 MiB; GB/s of raw bytes",
    )
    wrong = 0  # tensors
    for tensor, (kind, raw) in samples.packaged().items():
        for codec in codecs:
            row = measure(raw, kind, 256 << 20, codec=codec)
            wrong += not row.correct
            table.add_row(
                tensor,
                kind.name,
                codec,
                f"{row.ratio:.3f}",
                f"{row.encode_gb_per_s:.0f}",
                f"{row.decode_gb_per_s:.0f}",
                "NO" if not row.correct else "yes" if is_exact(codec, kind) else "within bound",
            )
    table.print()
    return wrong
