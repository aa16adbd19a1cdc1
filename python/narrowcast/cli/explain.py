"""`explain`: how the CUDA backend would run a call, why, and how long it should take."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from .._bench import operations
from .._comm.explain import Explanation, Prediction
from .._comm.explain import explain as explain_call
from .._files.display import bytes_text
from ..cuda import device_count
from ..local import LocalRanks
from ..types import value_type
from ._common import BadUse, TypeOption, backend_name, comm_codec_name, print_json
from ._sizes import parse_size
from ._tables import Column, Table

# Used if the machine does not have several GPUs.
_DEFAULT_RANKS = 8
_MAX_RANKS, _MAX_HOST_RANKS = 8, 64
_HOST_RANKS = 4


def explain(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="As for `bench`, such as all_reduce.")],
    size: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="Size of the larger buffer, as for `bench`, such as 64M.")
    ],
    dtype: TypeOption = "bfloat16",
    ranks: Annotated[
        int | None, typer.Option(min=1, max=_MAX_HOST_RANKS, help="Default: all GPUs, or 8; 4 on the host.")
    ] = None,
    backend: Annotated[
        str, typer.Option(callback=backend_name, help="cuda: between GPUs. host: between processes of this machine.")
    ] = "cuda",
    codec: Annotated[str, typer.Option(callback=comm_codec_name, help="auto or a codec.")] = "auto",
    ctas: Annotated[
        int, typer.Option(min=0, max=64, help="Maximum number of CTAs; 0: NARROWCAST_MAX_CTAS, or no limit.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Show how a call would run, why, and how long it should take. Needs no GPU."""
    if backend == "host" and ctas:
        raise BadUse("--ctas is for --backend cuda")
    if operation not in operations.names():
        raise BadUse(f"{operation!r} is not an operation (known: {', '.join(operations.names())})")
    kind = value_type(dtype)
    size_bytes = parse_size(size)
    if ranks is None and backend == "host":
        ranks = _HOST_RANKS
    elif ranks is None:
        gpus = device_count()
        ranks = min(gpus, _MAX_RANKS) if gpus > 1 else _DEFAULT_RANKS
    # At least one value, as in the benchmark, unless the size is 0.
    count = operations.count_of(operation, size_bytes, kind, ranks) if size_bytes else 0
    name = operations.call_of(operation)
    if backend == "host":
        # Only a communicator has a cost model of the host backend.
        with LocalRanks(ranks) as comms:
            explanation = comms[0].explain(name, count, dtype=kind.name, codec=codec)
    else:
        if ranks > _MAX_RANKS:
            raise BadUse(f"--ranks {ranks} is more than {_MAX_RANKS}, the most GPUs of a communicator")
        explanation = explain_call(name, count, dtype=kind.name, ranks=ranks, codec=codec, max_ctas=ctas)
    call = {
        "operation": operation,
        "bytes": operations.size_of(operation, count, kind, ranks),
        "count": count,
        "dtype": kind.name,
        "ranks": ranks,
        "codec": codec,
    }
    if json:
        print_json({"asked": call, "chosen": dataclasses.asdict(explanation)})
    else:
        _table(call, explanation).print()


def _table(call: dict[str, Any], explanation: Explanation) -> Table:
    table = Table(
        *(Column(name, folds=True) for name in ("", "chosen", "reason")),
        title="{operation} of {count:,} {dtype} between {ranks} ranks".format(**call),
    )
    table.add_row("size", bytes_text(call["bytes"]), "")
    runs = explanation.ctas or explanation.path in ("frames", "plan")
    table.add_row("path", explanation.path if runs else "no kernel", explanation.path_why)
    if explanation.plan is not None:
        table.add_row("plan", explanation.plan, "")
    for one in explanation.plans.values():
        if one.why_not is not None:
            time = "" if one.microseconds is None else f"{one.microseconds:.1f} us: "
            table.add_row("", f"not {one.plan}", time + one.why_not)
    if explanation.shots is not None:
        table.add_row("shots", str(explanation.shots), explanation.shots_why or "")
    table.add_row("codec", explanation.codec, explanation.codec_why)
    if explanation.ctas:
        packets = f"sends packets of {explanation.packet_bytes} bytes" if explanation.packet_bytes else ""
        table.add_row("kernel", f"{explanation.ctas} CTAs of {explanation.warps} warps", packets)
    if explanation.rings:
        blocks = f"share the {explanation.block_bytes}-byte blocks of the largest piece"
        table.add_row("rings", str(explanation.rings), blocks)
    if explanation.predicted.chosen is not None:
        table.add_row("time", f"{explanation.predicted.chosen:.1f} us", _alternatives(explanation.predicted))
    if explanation.costs_warning is not None:
        table.add_row("costs", "", explanation.costs_warning)
    return table


def _alternatives(predicted: Prediction) -> str:
    """The predicted times of all candidates that the cost model has times for."""
    parts = []
    for name, cost in predicted.candidates.items():
        if cost.typical is not None:
            worst = "" if cost.incompressible is None else f" ({cost.incompressible:.1f} incompressible)"
            parts.append(f"{cost.typical:.1f} {name}{worst}")
    return "predicted: " + ", ".join(parts)
