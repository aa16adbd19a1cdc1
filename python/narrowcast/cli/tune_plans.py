"""`tune --plan`: the plans of the user that are measured, and where they were faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from .._bench.cost_model import Curve, Times
from .._bench.tuned_plans import TunedPlan
from .._files.display import bytes_text
from .._plan.loading import PROGRAM, load
from ..errors import InvalidArgumentError, UnsupportedError
from ..plan import Plan
from ._common import BadUse, existing_file
from ._tables import Column, Table
from .plan._calls import check_comparable
from .plan.source import proof_of


def plans_of(sources: Sequence[Path], numbers: Sequence[int]) -> dict[int, list[TunedPlan]]:
    """The plans of the option --plan, by number of ranks.

    A document is measured if its number of ranks is. A program has a plan for each number. Of a folder, the files that
    end in .json are used.
    """
    found: dict[int, dict[str, TunedPlan]] = {number: {} for number in numbers}
    for source, is_named in _files(sources):
        plans = [_load(source, number) for number in numbers] if source.suffix == PROGRAM else [_load(source, None)]
        for plan in plans:
            ranks = len(plan.model.ranks)
            if ranks in found:
                tuned = _tuned(source, plan)
                found[ranks].setdefault(tuned.series, tuned)
            elif is_named:
                listed = ", ".join(map(str, numbers))
                raise BadUse(f"{source} is for {ranks} ranks, not {listed} (--ranks)")
    return {number: list(plans.values()) for number, plans in found.items()}


def plan_table(
    times: Times, ranks: int, link: str, plans: Sequence[TunedPlan], other: Callable[[TunedPlan, int], float | None]
) -> Table:
    """The measured sizes for which each plan was faster.

    other: the time in microseconds without the plan, for bytes of `count` values; None if it is not known.
    """
    titles = ("plan", "", "faster than the library's own, by bytes from rank to rank")
    table = Table(*(Column(name, folds=True) for name in titles), title=f"plans for {ranks} ranks")
    for plan in plans:
        measured = times.typical(Curve(plan.operation, ranks, link, plan.series))
        faster = {}
        for count_bytes, microseconds in measured.items():
            without = other(plan, count_bytes)
            faster[count_bytes] = without is not None and microseconds < without
        table.add_row(plan.series.removeprefix("plan:"), plan.operation, ", ".join(ranges(faster)) or "never")
    return table


def ranges(faster: dict[int, bool]) -> Iterator[str]:
    """ "1.00 KiB to 4.00 KiB", "16.00 MiB" """
    for is_faster, group in groupby(faster, lambda count_bytes: faster[count_bytes]):
        sizes = list(group)
        if is_faster:
            yield " to ".join(dict.fromkeys(bytes_text(size) for size in (sizes[0], sizes[-1])))


def _files(sources: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, and whether the user named the file itself."""
    for source in sources:
        if not source.is_dir():
            yield existing_file(source), True
            continue
        files = sorted(source.glob("*.json"))
        if not files:
            raise BadUse(f"the folder {source} has no plans: files that end in .json")
        yield from ((file, False) for file in files)


def _load(source: Path, ranks: int | None) -> Plan:
    with named(source):
        return load(source, ranks=ranks)


def _tuned(source: Path, plan: Plan) -> TunedPlan:
    with named(source):
        proof_of(plan, str(source))
        check_comparable(plan, str(source))
        model = plan.model
        return TunedPlan(
            str(source),
            plan.cost_name,
            plan.json(),
            model.operation,
            len(model.ranks),
            model.root,
            model.in_place == "yes",
            model.min_bytes,
            model.max_bytes,
        )


@contextlib.contextmanager
def named(source: Path) -> Iterator[None]:
    """Makes errors begin with the file."""
    try:
        yield
    except (InvalidArgumentError, UnsupportedError) as error:
        text = str(error)
        if text.startswith(str(source)):
            raise
        raise type(error)(f"{source}: {text}") from None
