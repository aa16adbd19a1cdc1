"""Programs mean what their statements mean one after another, whatever order their steps run in."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrowcast._plan.model import Operand, PlanModel
from narrowcast.plan import Chunks, Program, channel, group, packets

CHUNKS = 3


class Written:
    """A random program, and the values that its chunks have when its statements run one after another."""

    def __init__(self, seed: int, in_place: str | None) -> None:
        self.random = random.Random(seed)
        self.ranks = self.random.randint(1, 4)
        self.program = Program(
            "all_reduce", self.ranks, chunks=CHUNKS, depth=self.random.randint(1, 3), in_place=in_place
        )
        self.output: dict[tuple[int, int], object] = {}
        self.scratch = [rank.scratch(CHUNKS) for rank in self.program.ranks]
        self.in_scratch: dict[tuple[int, int], object] = {}
        self.results: list[tuple[Chunks, list[object]]] = []
        for _ in range(self.random.randint(1, 25)):
            with group(self.random.choice([0, 0, 1])), channel(self.random.choice(["", "", "x"])):
                self.statement()
        for chunks, values in self.results:
            self.store(self.program.ranks[self.random.randrange(self.ranks)], chunks, values)

    def source(self, count: int) -> tuple[Chunks, list[object]]:
        """Chunks of some rank that have values, and these."""
        choices = []
        for rank in self.program.ranks:
            for start in range(CHUNKS - count + 1):
                places = range(start, start + count)
                choices.append((rank.input[start : start + count], [("in", rank.index, c) for c in places]))
                for chunks, known in ((rank.output, self.output), (self.scratch[rank.index], self.in_scratch)):
                    if all((rank.index, c) in known for c in places):
                        values = [known[rank.index, c] for c in places]
                        choices += [(chunks[start : start + count], values)] * 2
        choices += [(chunks, values) for chunks, values in self.results if len(chunks) == count] * 3
        return self.random.choice(choices)

    def statement(self) -> None:
        count = self.random.choice([1, 1, 1, 2, 3])
        rank = self.random.choice(self.program.ranks)
        if self.random.random() < 0.4:
            sources = [self.source(count) for _ in range(self.random.randint(1, 3))]
            result = rank.reduce(chunks for chunks, _ in sources)
            values: list[object] = [
                entry[0] if len(entry) == 1 else ("sum", *entry)
                for entry in zip(*(values for _, values in sources), strict=True)
            ]
            self.results.append((result, values))
        else:
            self.store(rank, *self.source(count))

    def store(self, rank, chunks: Chunks, values: list[object]) -> None:
        buffer, known = self.random.choice([(rank.output, self.output), (self.scratch[rank.index], self.in_scratch)])
        start = self.random.randint(0, CHUNKS - len(values))
        if buffer._range.buffer is chunks._range.buffer and 0 < abs(start - chunks._range.start) < len(values):
            return  # an error
        buffer[start : start + len(values)] = chunks
        known.update(((rank.index, start + i), value) for i, value in enumerate(values))


class Run:
    """Runs a plan of copies, reductions and messages, in a random order of its groups."""

    def __init__(self, plan: PlanModel, seed: int, *, in_place: bool) -> None:
        self.plan = plan
        self.in_place = in_place
        self.memory = {
            self.cell(rank, "input", chunk): ("in", rank, chunk)
            for rank in range(len(plan.ranks))
            for chunk in range(CHUNKS)
        }
        self.rings: list[deque[list[object]]] = [deque() for _ in plan.channels]
        done = {(rank, g): 0 for rank, one in enumerate(plan.ranks) for g in range(len(one.groups))}
        order = random.Random(seed)
        while any(count < len(self.steps(key)) for key, count in done.items()):
            ready = [key for key, count in done.items() if self.is_ready(key, count, done)]
            assert ready, "deadlock"
            key = order.choice(ready)
            self.run(key[0], self.steps(key)[done[key]])
            done[key] += 1
        assert not any(self.rings)

    def steps(self, key: tuple[int, int]):
        return self.plan.ranks[key[0]].groups[key[1]].steps

    def cell(self, rank: int, buffer: str | None, chunk: int) -> tuple[int, str | None, int]:
        return rank, "output" if self.in_place and buffer == "input" else buffer, chunk

    def is_ready(self, key: tuple[int, int], number: int, done: dict[tuple[int, int], int]) -> bool:
        if number == len(self.steps(key)):
            return False
        step = self.steps(key)[number]
        received = [operand.channel for operand in step.sources if operand.place == "message"]
        sent = [operand.channel for operand in step.destinations if operand.place == "message"]
        # Messages that are split into chunks need a slot for each.
        return (
            all(len(self.rings[one]) >= received.count(one) for one in received)
            and all(
                sum(map(len, self.rings[one])) + step.count * sent.count(one) <= self.plan.channels[one].depth
                for one in sent
            )
            and all(done[key[0], other] > last for other, last in step.after)
        )

    def run(self, rank: int, step) -> None:
        values = [self.read(rank, operand, step.count) for operand in step.sources]
        result = values[0] if step.kind == "copy" else [("sum", *entry) for entry in zip(*values, strict=True)]
        for operand in step.destinations:
            if operand.place == "message":
                self.rings[operand.channel].append(result)
            else:
                for i, value in enumerate(result):
                    self.memory[self.cell(rank, operand.buffer, operand.chunk + i)] = value

    def read(self, rank: int, operand: Operand, count: int) -> list[object]:
        if operand.place == "message":
            return self.rings[operand.channel].popleft()
        return [self.memory[self.cell(rank, operand.buffer, operand.chunk + i)] for i in range(count)]


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 40))
def test_steps_in_any_order_do_what_the_statements_say(seed):
    written = Written(seed, None)
    model = written.program.model
    for order in range(3):
        for in_place in (False, True) if model.in_place == "either" else (False,):
            memory = Run(model, order, in_place=in_place).memory
            found = {(rank, chunk): memory.get((rank, "output", chunk)) for rank, chunk in written.output}
            assert found == written.output


def test_random_programs_are_varied():
    """Some work in place, others do not; there are groups that wait for others, rings, and combined steps."""
    models = [Written(seed, None).program.model for seed in range(60)]
    assert {model.in_place for model in models} == {"no", "either"}
    steps = [step for model in models for rank in model.ranks for one in rank.groups for step in one.steps]
    assert any(step.after for step in steps)
    assert any(len(step.destinations) > 2 for step in steps)
    assert any(step.count == 3 for step in steps)
    assert any(model.channels for model in models)


def test_packets_are_rings_of_packets():
    p = Program("all_reduce", 2)
    with packets():
        p.ranks[1].output[0] = p.ranks[0].input[0]
    assert p.model.channels[0].packets


@pytest.mark.parametrize("seed", range(20))
def test_a_proof_by_this_test_can_fail(seed):
    """Dropping a wait for another group, or the first step of a group, is noticed in some order."""
    for attempt in range(40):
        model = Written(1000 * seed + attempt, "no").program.model
        waiting = [step for rank in model.ranks for one in rank.groups for step in one.steps if step.after]
        if not waiting:
            continue
        expected = [Run(model, order, in_place=False).memory for order in range(5)]
        assert all(memory == expected[0] for memory in expected)
        for step in waiting:
            step.after = []
        outcomes = []
        for order in range(20):
            try:
                outcomes.append(Run(model, order, in_place=False).memory)
            except KeyError:
                return
        if any(memory != expected[0] for memory in outcomes):
            return
    raise AssertionError("no wait mattered")
