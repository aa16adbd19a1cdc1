"""The public class of plans, which are read from a file or written by a program."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files.atomic import write_file
from .._native import plan as native
from .._native.numbers import as_unsigned
from ..errors import InvalidArgumentError
from . import formats, simulation
from .dsl.sites import Site
from .model import PlanModel
from .report import Report, report_of
from .simulation import Simulation
from .text import heading, listing
from .timeline import timeline


class Plan:
    """A collective for a fixed number of ranks: which rank moves what to whom, in which order, with which codec."""

    def __init__(self, model: PlanModel, site_of: Callable[[int], Site | None] | None = None) -> None:
        """model: the plan as objects. site_of: as the method `site`."""
        self._model = model
        self._site_of = site_of

    @property
    def model(self) -> PlanModel:
        """The plan as objects."""
        return self._model

    @property
    def name(self) -> str:
        """The name for display; may be empty."""
        return self.model.name

    @property
    def cost_name(self) -> str:
        """The name of the plan's times in cost models, such as "plan:ring@1a2b3c4d"."""
        return native.NativePlan.read(self.json()).info().cost_name

    def site(self, origin: int) -> Site | None:
        """The line of the program or the document that a step with this origin comes from; None if it is not known."""
        return None if self._site_of is None else self._site_of(origin)

    def json(self) -> str:
        """The plan in the JSON form of docs/design/plans.md."""
        return self.model.to_json()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON form to a file, which is replaced atomically. Raises OSError."""
        write_file(Path(path), (self.json() + "\n").encode())

    def export(self, form: str) -> str:
        """The plan in a format of another library: "msccl_xml" or "mscclpp_json" (of MSCCL++ 0.8 and later).

        Warns if the plan exceeds limits of the libraries that read the format. The formats have no instances, so
        plans with several are replicated.

        Raises UnsupportedError, with the rank, group, step and line, for what the format cannot express, and
        InvalidArgumentError for other formats and for plans that are wrong.
        """
        model = self.model
        if model.instances != 1 and form != "json":
            model = PlanModel.from_json(self._lowered().write())
        text = formats.write(model, form, self.site)
        for message in formats.exceeded_limits(text, form):
            warnings.warn(message, stacklevel=2)
        return text

    def verify(self, *, depth: int = 0) -> Report:
        """Proves that the plan is correct, or refutes it.

        It is lowered first, as to run it: replicated, and with adjacent steps combined. A proof covers structure and
        bounds, reads only of what was written, no deadlock under any timing, no races, and the result. It holds in
        place and not, and for successive calls.

        depth: messages that every ring holds; 0: as the plan says.

        Raises UnsupportedError if the plan is too large to be lowered; the report says so if it is too large to be
        proved.
        """
        return report_of(self._lowered().verify(depth=as_unsigned(depth, "depth", 32)), self.site)

    def simulate(
        self, nbytes: int, *, machine: str | os.PathLike[str] | None = None, ratio: float | None = None
    ) -> Simulation:
        """Predicts how long a call takes on a machine, which is simulated.

        nbytes: raw bytes of the larger buffer of the call, as for `narrowcast bench`.
        machine: a name of `machines()`, or the path of a description (docs/design/plans.md). None: the smallest of
        `machines()` that has a GPU for each rank.
        ratio: wire bytes / raw bytes of encoded values. None: as the cost model assumes for bfloat16.

        Raises InvalidArgumentError if the plan is not proved, if the description is invalid or has too few GPUs, and
        OSError.
        """
        return self.simulations([nbytes], machine=machine, ratio=ratio)[0]

    def simulations(
        self, sizes: Iterable[int], *, machine: str | os.PathLike[str] | None = None, ratio: float | None = None
    ) -> list[Simulation]:
        """Predictions for several sizes, as `simulate` makes them, on several CPUs. The plan is proved only once."""
        lowered = self._lowered()

        def predict(nbytes: int) -> Simulation:
            return self._simulation(lowered, nbytes, *self._simulated(nbytes, machine, ratio))

        with simulation.naming_file(machine), ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(predict, sizes))

    def schedule(
        self,
        nbytes: int,
        *,
        machine: str | os.PathLike[str] | None = None,
        ratio: float | None = None,
        max_groups: int = 0,
        max_instances: int = 0,
        any_executor: bool = False,
    ) -> Schedule:
        """Merges groups that do not need thread blocks of their own, without making calls slower on a machine.

        nbytes, machine, ratio: as for `simulate`.
        max_groups: of each rank, even if calls then take longer; 0: no limit.
        max_instances: how often a plan of rings may be replicated, to divide its work more evenly (1, 2, 4 and so on
            are tried); 0: two times.
        any_executor: whether the plan may exceed the limits of generated kernels, for example to export it.

        Raises the errors of `simulate`, and UnsupportedError if there cannot be so few groups.
        """
        text, options = self._simulated(nbytes, machine, ratio)
        lowered = self._lowered()
        with simulation.naming_file(machine):
            merged, report = lowered.schedule(
                text,
                max_groups=as_unsigned(max_groups, "max_groups", 32),
                max_instances=as_unsigned(max_instances, "max_instances", 32),
                any_executor=any_executor,
                **options,
            )
        plan = Plan(PlanModel.from_json(merged.write()), self.site)
        return Schedule(plan, ScheduleCost(**report["before"]), ScheduleCost(**report["after"]))

    def check_form(self) -> None:
        """Raises InvalidArgumentError if the plan names channels, chunks or steps that it does not have."""
        fault = self.verify().fault
        if fault is not None and fault.property in ("structure", "bounds"):
            raise InvalidArgumentError(f"the plan is invalid: {fault}")

    def show(self, path: str | os.PathLike[str] | None = None) -> None:
        """Prints the steps, or draws who sends what when, in logical time: each step takes one unit.

        path: of the image, which is replaced atomically; ends in .png, .svg or .pdf, or in .json for a Chrome trace,
        which Perfetto displays.

        Raises UnsupportedError without matplotlib, InvalidArgumentError for other endings and for invalid plans, and
        OSError.
        """
        self.check_form()
        if path is None:
            print(*listing(self.model), sep="\n")
            return
        from .drawing import write_timeline

        write_timeline(self.model, timeline(self.model), Path(path), heading(self.model), self.site)

    def __repr__(self) -> str:
        return f"<{heading(self.model)}>"

    def _simulation(
        self, lowered: native.NativePlan, nbytes: int, machine: str, options: dict[str, float]
    ) -> Simulation:
        def drawn() -> tuple[PlanModel, list[list[Any]]]:
            return PlanModel.from_json(lowered.write()), lowered.simulate(machine, timeline=True, **options)["timeline"]

        report = lowered.simulate(machine, timeline=False, **options)
        return simulation.simulation_of(report, self.model, nbytes, machine, drawn, self.site)

    def _simulated(
        self, nbytes: int, machine: str | os.PathLike[str] | None, ratio: float | None
    ) -> tuple[str, dict[str, float]]:
        """The description of the machine, and the options of simulations."""
        options = {
            "piece_bytes": simulation.piece_bytes(self.model, as_unsigned(nbytes, "nbytes")),
            "ratio": simulation.usual_ratio(self.model) if ratio is None else simulation.checked_ratio(ratio),
        }
        return simulation.machine_text(machine, len(self.model.ranks)), options

    def _lowered(self) -> native.NativePlan:
        """The plan that is verified and executed, in the library."""
        return native.NativePlan.read(self.json()).lower()


@dataclass(frozen=True)
class ScheduleCost:
    """The cost of a plan in a simulation."""

    groups: int  #: of all ranks: thread blocks, or sets of them
    microseconds: float  #: of a call
    most_idle: float  #: the largest share of the time, 0 to 1, in which a group does not work


@dataclass(frozen=True)
class Schedule:
    """A plan whose groups were merged."""

    plan: Plan
    before: ScheduleCost
    after: ScheduleCost
