"""`explain`: how a communicator would run a call, why, and how long it should take."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .._bench import operations
from .._bench.tuned_plans import TunedPlan
from .._comm.explain import Explanation, Prediction, Predictor, plan_call
from .._dropin import predictor as drop_in
from .._files.display import bytes_text
from .._native.operations import describe
from ..comm import Communicator
from ..cuda import device_count
from ..local import LocalRanks
from ..types import value_type
from ._common import BadUse, ReductionOption, TypeOption, backend_name, comm_codec_name, existing_file, print_json
from ._sizes import parse_size
from ._tables import Column, Table
from .tune_plans import named, plans_of

# Used if the machine does not have several GPUs.
_DEFAULT_RANKS = 8
_MAX_RANKS, _MAX_HOST_RANKS = 8, 64
_HOST_RANKS = 4
# When calls run plans, as in settings.
_USES = ("faster", "always")


def _use(name: str) -> str:
    if name not in _USES:
        raise BadUse(f"--use {name} is not {' or '.join(_USES)}")
    return name


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
    codec: Annotated[
        str | None,
        typer.Option(help="auto or a codec that the call allows; CODEC! forces it. Default: auto, or by the settings."),
    ] = None,
    result_codec: Annotated[
        str | None, typer.Option(help="Codec of the results of an all_reduce. Default: as --codec, or by the settings.")
    ] = None,
    ctas: Annotated[
        int, typer.Option(min=0, max=64, help="Maximum number of CTAs; 0: NARROWCAST_MAX_CTAS, or no limit.")
    ] = 0,
    plans: Annotated[
        list[Path] | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="A plan that the communicator uses, a program that writes one (.py), or a folder; repeatable.",
        ),
    ] = None,
    use: Annotated[
        str,
        typer.Option(
            callback=_use,
            metavar="WHEN",
            help="Calls run plans that are predicted to be faster, or always: all calls that a plan suits.",
        ),
    ] = "faster",
    op: ReductionOption = "sum",
    root: Annotated[int, typer.Option("-r", "--root", min=0, help="Root of rooted operations.")] = 0,
    in_place: Annotated[
        bool | None,
        typer.Option("--in-place/--out-of-place", help="Consider plans, too, that only work so.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Settings of the drop-in for NCCL. Default: NARROWCAST_CONFIG."),
    ] = None,
    communicator: Annotated[
        str, typer.Option(metavar="NAME", help="Its name (commName), for settings that depend on it.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Show how a call would run, why, and how long it should take. Needs no GPU.

    With --config, or NARROWCAST_CODEC, _CONFIG, _OFF, _PLANS or _TAKE, it shows how the drop-in for NCCL would run it.
    """
    for one in (codec, result_codec):
        if one is not None:
            comm_codec_name(one)
    if backend == "host" and (ctas or config or communicator):
        raise BadUse("--ctas, --config and --communicator are for --backend cuda")
    if operation not in operations.names():
        raise BadUse(f"{operation!r} is not an operation (known: {', '.join(operations.names())})")
    kind = value_type(dtype)
    size_bytes = parse_size(size)
    if ranks is None and backend == "host":
        ranks = _HOST_RANKS
    elif ranks is None:
        gpus = device_count()
        ranks = min(gpus, _MAX_RANKS) if gpus > 1 else _DEFAULT_RANKS
    if ranks > _MAX_RANKS and backend == "cuda":
        raise BadUse(f"--ranks {ranks} is more than {_MAX_RANKS}, the most GPUs of a communicator")
    if root >= ranks:
        raise BadUse(f"--root {root} is not one of {ranks} ranks")
    # At least one value, as in the benchmark, unless the size is 0.
    count = operations.count_of(operation, size_bytes, kind, ranks) if size_bytes else 0
    name = operations.call_of(operation)
    own = _plans(plans or [], name, ranks)
    arguments: dict[str, Any] = {"dtype": kind.name, "codec": codec or "auto", "result_codec": result_codec}
    arguments |= {"op": op, "root": root, "in_place": in_place}
    settings = None
    if backend == "host":
        # Only a communicator has a cost model of the host backend.
        with LocalRanks(ranks) as comms:
            _use_on_host(comms, own, kind.name, op, always=use == "always")
            explanation = comms[0].explain(name, count, **arguments)
    else:
        predictor = _predictor(ranks, ctas, config, communicator)
        by_settings = codec is None and result_codec is None and drop_in.has_settings(os.environ)
        if by_settings and describe(name).nccl_functions:
            call = plan_call(name, count, **arguments)
            settings = drop_in.decide(predictor.handle, call, ranks, communicator=communicator)
            arguments["codec"] = settings.codec
            if settings.result_codec != settings.codec:
                arguments["result_codec"] = settings.result_codec
        for plan in own:
            with named(Path(plan.source)):
                predictor.use(plan.json, kind.name, op, always=use == "always")
        explanation = predictor.explain(name, count, **arguments)
    asked = {
        "operation": operation,
        "bytes": operations.size_of(operation, count, kind, ranks),
        "count": count,
        "ranks": ranks,
        **arguments,
    }
    if json:
        by_rules = {} if settings is None else {"settings": dataclasses.asdict(settings)}
        print_json({"asked": asked, **by_rules, "chosen": dataclasses.asdict(explanation)})
    else:
        _table(asked, explanation, settings).print()


def _plans(sources: Sequence[Path], operation: str, ranks: int) -> list[TunedPlan]:
    """The plans of the option --plan for the operation."""
    found = plans_of(sources, [ranks])[ranks]
    for plan in found:
        if plan.operation != operation and Path(plan.source) in sources:
            raise BadUse(f"{plan.source} is a plan of {plan.operation}, not of {operation}")
    return [plan for plan in found if plan.operation == operation]


def _predictor(ranks: int, ctas: int, config: Path | None, communicator: str) -> Predictor:
    """The predictor of a communicator between GPUs: of the drop-in if there are settings that only it reads."""
    if config is not None:
        os.environ["NARROWCAST_CONFIG"] = str(existing_file(config))
    if not drop_in.has_settings(os.environ):
        if communicator:
            raise BadUse(f"--communicator is for settings of the drop-in: --config, {', '.join(drop_in.SETTINGS)}")
        return Predictor.of(ranks, max_ctas=ctas)
    return Predictor(drop_in.predictor(ranks, max_ctas=ctas, communicator=communicator))


def _use_on_host(comms: LocalRanks, plans: Sequence[TunedPlan], dtype: str, op: str, *, always: bool) -> None:
    """Loads plans on all ranks. Rank 0 is the one that explains calls."""
    with ThreadPoolExecutor(len(comms)) as pool:
        for plan in plans:
            load = partial(Communicator.load_plan, plan=plan.json, dtype=dtype, op=op)
            with named(Path(plan.source)):
                first, *_ = pool.map(load, comms)
                first.use(always=always)


def _table(call: dict[str, Any], explanation: Explanation, settings: drop_in.Decision | None) -> Table:
    table = Table(
        *(Column(name, folds=True) for name in ("", "chosen", "reason")),
        title="{operation} of {count:,} {dtype} between {ranks} ranks".format(**call),
    )
    table.add_row("size", bytes_text(call["bytes"]), "")
    if settings is not None:
        by = settings.codec
        if settings.result_codec != settings.codec:
            by += f", results {settings.result_codec}"
        if settings.codec_from:
            by += f", by {settings.codec_from}"
        runs_in = f"NCCL: {settings.why_forwarded}" if settings.why_forwarded else "Narrowcast"
        table.add_row("settings", by, f"the drop-in runs the call in {runs_in}")
    runs = explanation.ctas or explanation.path in ("frames", "plan")
    table.add_row("path", explanation.path if runs else "no kernel", explanation.path_why)
    if explanation.plan is not None:
        table.add_row("plan", _plan_name(explanation, explanation.candidate, explanation.plan), "")
    for name, one in explanation.plans.items():
        if one.why_not is not None:
            time = "" if one.microseconds is None else f"{one.microseconds:.1f} us: "
            table.add_row("", f"not {_plan_name(explanation, name, one.plan)}", time + one.why_not)
    if explanation.shots is not None:
        table.add_row("shots", str(explanation.shots), explanation.shots_why or "")
    allowed = f" (allowed: {explanation.allowed})" if explanation.allowed else ""
    table.add_row("codec", explanation.codec, explanation.codec_why + allowed)
    if call["result_codec"] is not None:
        table.add_row("results", explanation.result_codec, "their codec")
    if explanation.error_bound is None:
        table.add_row("error", "unknown", "the errors of the plan add up in its own way")
    elif explanation.error_bound:
        table.add_row("error", f"{explanation.error_bound:.3g}", "at most, if all values are at most 1 in magnitude")
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


def _plan_name(explanation: Explanation, cost_name: str, name: str) -> str:
    """The name of a plan, or that of its costs if several plans have the same name."""
    names = [one.plan for one in explanation.plans.values()]
    return cost_name.removeprefix("plan:") if names.count(name) > 1 else name


def _alternatives(predicted: Prediction) -> str:
    """The predicted times of all candidates that the cost model has times for."""
    parts = []
    for name, cost in predicted.candidates.items():
        if cost.typical is not None:
            worst = "" if cost.incompressible is None else f" ({cost.incompressible:.1f} incompressible)"
            parts.append(f"{cost.typical:.1f} {name}{worst}")
    return "predicted: " + ", ".join(parts)
