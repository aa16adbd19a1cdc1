"""The table and the verdict of `narrowcast try`."""

from __future__ import annotations

from statistics import median

from .._try.profiles import NCCL
from .._try.trial import Measured, Trial
from .._try.verdict import Answer, Difference, Verdict
from ._tables import Column, Table, print_wrapped

_COMMUNICATION_NOTE = (
    "communication: the time of the calls of a step on the GPU, from a sample. Faster calls save at most this time; "
    "calls on fewer SMs can also make compute faster. How much of it compute hides is not known from the calls. "
    "waiting: the part of it until the last rank began a call, which faster calls do not save."
)


def verdict_text(found: Verdict) -> str:
    """The verdict as a sentence."""
    differences = found.differences
    if found.best is not None:
        return f"use the profile {found.best}: a step takes {_less(differences[found.best])}"
    if not differences:
        return "NCCL alone is as fast: leave it. Narrowcast executes no calls (narrowcast run -- COMMAND says why)"
    nearest = min(differences, key=lambda name: differences[name].ratio)
    if found.answer is Answer.SLOWER:
        return f"NCCL alone is faster: leave it. With the profile {nearest} a step takes {_less(differences[nearest])}"
    widest = max(one.margin for one in differences.values() if one.answer is not Answer.SLOWER)
    if found.answer is Answer.AS_FAST:
        return f"NCCL alone is as fast: leave it. A difference would be within \u00b1{100 * widest:.1f}%"
    return (
        f"no answer: the runs vary too much to see differences of less than {100 * widest:.1f}%. Try more --rounds, "
        "more --steps, or a machine without other work"
    )


def _less(difference: Difference) -> str:
    percent = 100 * (1 - difference.ratio)
    more = f"{percent:.1f}% less time" if percent >= 0 else f"{-percent:.1f}% more time"
    return f"{more} (\u00b1{100 * difference.margin:.1f}%)"


def print_report(tried: Trial, found: Verdict) -> None:
    """Prints the table and the verdict to standard output."""
    is_timed = any(run.communication.gpu_seconds is not None for one in tried.rounds for run in one.values())
    waits = any(run.communication.waiting_seconds is not None for one in tried.rounds for run in one.values())
    table = Table(
        Column("profile"),
        Column("runs", is_number=True, rank=4),
        Column("step", is_number=True),
        Column("spread", is_number=True, rank=3),
        Column("difference", is_number=True),
        Column("calls executed", is_number=True, rank=1),
        *[Column("communication", is_number=True, rank=2)] * is_timed,
        *[Column("waiting", is_number=True, rank=5)] * waits,
        title=f"A step: {tried.step}. Times by the clock of the {'GPU' if tried.is_on_gpu else 'host'}",
    )
    for name in (NCCL, *tried.profiles):
        runs = tried.runs(name)
        if not runs:
            table.add_row(name, "0", *["-"] * (4 + is_timed + waits))
            continue
        own = tried.run_seconds(name)
        middle = tried.median_seconds(name)
        assert middle is not None
        difference = found.differences.get(name)
        table.add_row(
            name,
            str(len(runs)),
            _milliseconds(middle),
            f"\u00b1{50 * (max(own) - min(own)) / middle:.1f}%",
            "-" if difference is None else f"{100 * (difference.ratio - 1):+.1f}% \u00b1{100 * difference.margin:.1f}%",
            _executed(runs),
            *[_communication(_median([run.communication.gpu_seconds for run in runs]), middle)] * is_timed,
            *[_milliseconds(_median([run.communication.waiting_seconds for run in runs]))] * waits,
        )
    table.print()
    if is_timed:
        print_wrapped(_COMMUNICATION_NOTE)
    if any(run.stopped for one in tried.rounds for run in one.values()):
        print_wrapped("Runs were stopped after enough steps; --steps 0 lets them end.")
    text = verdict_text(found)
    print_wrapped(f"{text[0].upper()}{text[1:]}.")


def _executed(runs: list[Measured]) -> str:
    one = runs[-1].communication
    return f"{one.executed:,.0f} of {one.calls:,.0f}"


def _communication(seconds: float | None, step_seconds: float) -> str:
    return "-" if seconds is None else f"{_milliseconds(seconds)} ({100 * seconds / step_seconds:.0f}%)"


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f} ms"
