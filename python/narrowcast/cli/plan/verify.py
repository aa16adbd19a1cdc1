"""`plan verify`: proves or refutes plans."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ..._plan.report import Report, Step
from ...errors import NarrowcastError, UnsupportedError
from .._common import print_json
from ._lines import print_lines
from ._signals import ended_by_signals
from .source import DepthOption, RanksOption, plan_of

#: Exit status: a plan is refuted.
REFUTED = 1
#: Exit status: no plan is refuted, but not all are proved.
UNSUPPORTED = 2


def verify(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Plans (JSON, MSCCL XML, MSCCL++ JSON; -: standard input) or Python programs (.py)."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one per file.")] = False,
    ranks: RanksOption = None,
    depth: DepthOption = None,
    ring_depth: Annotated[int, typer.Option(min=0, help="Messages that every ring holds; 0: as the plan says.")] = 0,
) -> None:
    """Prove that plans are correct, or show what is wrong.

    Files that are missing or wrong are errors; plans with features that the verifier does not have are unsupported.
    Exit status: 0 if all are proved, 1 if any is refuted, otherwise 2.
    """
    rows = []
    for source in sources:
        try:
            plan = plan_of(source, ranks, depth)
            with ended_by_signals():
                report = plan.verify(depth=ring_depth)
            rows.append(_row(source, report))
            text = str(report)
        except (NarrowcastError, OSError) as error:
            text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            text = text.removeprefix(f"{source}: ")
            verdict = "unsupported" if isinstance(error, UnsupportedError) else "error"
            rows.append(_unproved(source, verdict, text))
            text = f"{verdict}: {text}"
        if not json:
            print_lines(f"{source}: {text}".splitlines())
            sys.stdout.flush()
    if json:
        print_json(rows)
    verdicts = {row["verdict"] for row in rows}
    if verdicts != {"proved"}:
        raise typer.Exit(REFUTED if "refuted" in verdicts else UNSUPPORTED)


def _row(source: str, report: Report) -> dict[str, Any]:
    fault, split = report.fault, report.split_fault
    return {
        **_unproved(source, report.verdict, ""),
        "property": None if fault is None else fault.property or None,
        **_place(None if fault is None else fault.where),
        "trace": [] if fault is None else [_place(step) for step in fault.trace],
        "least_fifo_depth": report.least_depth,
        "split": None if split is None else {"property": split.property, **_place(split.where)},
        "least_fifo_depth_when_split": report.depth_needed_when_split,
        "roundings": report.roundings,
        "inexact_encodings": report.inexact_encodings,
        "rank_order": report.rank_order,
        "same_everywhere": report.same_everywhere,
        "steps": report.steps,
        "seconds": report.seconds,
    }


def _unproved(source: str, verdict: str, message: str) -> dict[str, Any]:
    """Of a file about which nothing else is known."""
    facts = (
        "least_fifo_depth",
        "split",
        "least_fifo_depth_when_split",
        "roundings",
        "inexact_encodings",
        "rank_order",
        "same_everywhere",
        "steps",
        "seconds",
    )
    return {
        "file": source,
        "verdict": verdict,
        "property": None,
        **_place(None),
        "message": message,
        "trace": [],
        **dict.fromkeys(facts),
    }


def _place(step: Step | None) -> dict[str, Any]:
    if step is None:
        return dict.fromkeys(("rank", "thread_block", "step", "line", "message"))
    return {
        "rank": step.rank,
        "thread_block": step.group,
        "step": step.step,
        "line": None if step.site is None else str(step.site),
        "message": step.text,
    }
