"""Plans as Python objects, and their JSON form."""

from __future__ import annotations

import json

import pytest
from narrowcast._plan.model import Channel, Group, Operand, PlanModel, Rank, Step
from narrowcast.errors import InvalidArgumentError


def every_feature() -> PlanModel:
    """A plan that has each key of the JSON form. It makes no sense as a collective."""
    loop = Step("loop", unit_bytes=4096, body=[Step("copy", [Operand("input", 1)], [Operand("scratch", 2)], count=2)])
    steps = [
        Step("reduce", [Operand("input", 1), Operand(channel=0, codec="window")], [Operand("output", 0, channel=1)]),
        Step("copy", [Operand("output", 0, switch=2, packets=True)], [Operand("output", 0)], after=[(1, 0)], origin=7),
        Step("signal", channels=[1], relaxed=True),
        Step("wait", channels=[1]),
        Step("barrier", barrier=0),
        loop,
    ]
    return PlanModel(
        "all_reduce",
        name="every key",
        root=1,
        chunks=4,
        instances=2,
        scratch_copies=2,
        in_place="yes",
        threads="independent",
        min_bytes=16,
        max_bytes=1 << 40,
        channels=[
            Channel("ring", 0, 1, depth=8, packets=True),
            Channel("memory", 1, 0, initial=3),
            Channel("switch", ranks=[0, 1]),
        ],
        ranks=[Rank([Group(steps), Group([Step("barrier", barrier=0)])], 3, [[0, 1]]), Rank([Group()])],
    )


def test_reading_what_was_written_gives_the_same_plan() -> None:
    plan = every_feature()
    assert PlanModel.from_json(plan.to_json()) == plan


def test_default_values_are_not_written() -> None:
    plan = PlanModel("all_reduce", ranks=[Rank([Group([Step("copy", [Operand("input")], [Operand("output")])])])])
    assert json.loads(plan.to_json()) == {
        "narrowcast_plan": 1,
        "operation": "all_reduce",
        "channels": [],
        "ranks": [
            {
                "groups": [
                    {
                        "steps": [
                            {
                                "step": "copy",
                                "from": [{"buffer": "input", "chunk": 0}],
                                "to": [{"buffer": "output", "chunk": 0}],
                            }
                        ]
                    }
                ]
            }
        ],
    }


def test_steps_are_counted_inside_loops() -> None:
    assert every_feature().step_count() == 8


def test_a_fault_of_the_form_is_an_error_that_says_where() -> None:
    document = json.loads(every_feature().to_json())
    document["ranks"][0]["groups"][0]["steps"][1].update(after=[[1]])
    with pytest.raises(InvalidArgumentError, match=r"ranks\[0\].groups\[0\].steps\[1\].after"):
        PlanModel.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul", b"\xff"])
def test_text_that_is_not_json_is_an_error(text) -> None:
    with pytest.raises(InvalidArgumentError):
        PlanModel.from_json(text)
