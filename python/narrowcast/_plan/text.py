"""Plans as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from .model import Operand, PlanModel, Step

__all__ = ["Names", "amount", "heading", "listing"]

_IN_PLACE = {"no": ", not in place", "yes": ", in place", "either": ""}


def heading(plan: PlanModel) -> str:
    """What a plan is, in one line."""
    name = f' "{plan.name}"' if plan.name else ""
    ranks = amount(len(plan.ranks), "rank")
    pieces = f", {plan.chunks} chunks in a piece" if plan.chunks != 1 else ""
    instances = f", {plan.instances} instances" if plan.instances != 1 else ""
    return f"{plan.operation}{name} of {ranks}{pieces}{instances}{_IN_PLACE[plan.in_place]}: " + amount(
        plan.step_count(), "step"
    )


def listing(plan: PlanModel, ranks: Iterable[int] | None = None) -> Iterator[str]:
    """The lines of a listing of all steps. `ranks`: of these ranks only."""
    names = Names(plan)
    yield heading(plan)
    for number in range(len(plan.ranks)) if ranks is None else ranks:
        rank = plan.ranks[number]
        scratch = f", {amount(rank.scratch_chunks, 'chunk')} of scratch" if rank.scratch_chunks else ""
        yield f"rank {number}{scratch}"
        for group_number, group in enumerate(rank.groups):
            if len(rank.groups) > 1:
                yield f"  group {group_number}"
            for step_number, step in enumerate(group.steps):
                yield f"{step_number:>6}  {names.step(number, step)}"
                for inner in step.body:
                    yield f"          {names.step(number, inner)}"


class Names:
    """Names steps and operands of a plan."""

    def __init__(self, plan: PlanModel) -> None:
        self._plan = plan
        # Parallel channels are distinguished by their numbers.
        paths = [(one.kind, one.sender, one.receiver, tuple(one.ranks)) for one in plan.channels]
        count = Counter(paths)
        self._numbers = [
            f" ({'ring' if path[0] == 'ring' else 'channel'} {i})" if count[path] > 1 else ""
            for i, path in enumerate(paths)
        ]

    def step(self, rank: int, step: Step) -> str:
        """A step of a rank: `reduce input[0], from rank 1 -> output[0], to rank 1`."""
        text = step.kind
        if step.kind in ("copy", "reduce"):
            sources = ", ".join(self.operand(rank, operand, step.count, "from") for operand in step.sources)
            destinations = ", ".join(self.operand(rank, operand, step.count, "to") for operand in step.destinations)
            text = f"{step.kind:<6} {sources} -> {destinations}"
        elif step.kind in ("signal", "flush"):
            text = f"{step.kind} " + ", ".join(self._end(channel, receiver=True) for channel in step.channels)
        elif step.kind == "wait":
            text = "wait for " + ", ".join(self._end(channel, receiver=False) for channel in step.channels)
        elif step.kind == "barrier":
            groups = self._plan.ranks[rank].barriers[step.barrier]
            text = f"barrier of groups {', '.join(map(str, groups))}"
        elif step.kind == "loop":
            text = f"loop over parts of {step.unit_bytes} bytes"
        if step.relaxed:
            text += ", relaxed"
        if step.after:
            text += "; after " + ", ".join(f"{group}.{number}" for group, number in step.after)
        return text

    def operand(self, rank: int, operand: Operand, count: int, direction: str) -> str:
        """An operand of a step of a rank. `direction`: `from` or `to`."""
        codec = f" ({operand.codec})" if operand.codec != "raw" else ""
        codec += ", partial sums" if operand.partial else ""
        if operand.place == "message":
            assert operand.channel is not None
            return f"{direction} {self._end(operand.channel, receiver=direction == 'to')}{codec}"
        last = f":{operand.chunk + count}" if count != 1 else ""
        text = f"{operand.buffer}[{operand.chunk}{last}]"
        if operand.channel is not None:
            channel = self._plan.channels[operand.channel]
            peer = channel.receiver if channel.sender == rank else channel.sender
            text += f" of rank {peer}{self._numbers[operand.channel]}"
        elif operand.switch is not None:
            text += f" of ranks {', '.join(map(str, self._plan.channels[operand.switch].ranks))}"
        return text + (", packets" if operand.packets else "") + codec

    def _end(self, number: int, *, receiver: bool) -> str:
        channel = self._plan.channels[number]
        if channel.sender == channel.receiver:
            return f"semaphore {number}"
        return f"rank {channel.receiver if receiver else channel.sender}{self._numbers[number]}"


def amount(count: int, name: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {name}" if count == 1 else f"{count:,} {name}s"
