"""Plans of the library, through ctypes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import narrowcast
import pytest
from narrowcast._native import plan
from narrowcast.errors import InvalidArgumentError

PLAN: dict[str, Any] = {
    "narrowcast_plan": 1,
    "name": "ö",
    "operation": "broadcast",
    "root": 1,
    "channels": [{"kind": "ring", "from": 1, "to": 0, "depth": 2}],
    "ranks": [
        {"groups": [{"steps": [{"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 0}]}]}]},
        {"groups": [{"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 0}]}]}]},
    ],
}

PROVED: dict[str, Any] = PLAN | {
    "ranks": [
        PLAN["ranks"][0],
        {
            "groups": [
                {
                    "steps": [
                        {
                            "step": "copy",
                            "from": [{"buffer": "input", "chunk": 0}],
                            "to": [{"buffer": "output", "chunk": 0}, {"channel": 0}],
                        }
                    ]
                }
            ]
        },
    ]
}


def test_a_plan_is_read_described_and_written() -> None:
    read = plan.NativePlan.read(json.dumps(PLAN))
    info = read.info()
    assert info.cost_name.startswith("plan:")
    expected = plan.PlanInfo("ö", "broadcast", root=1, ranks=2, chunks=1, groups=1, steps=2, cost_name=info.cost_name)
    assert info == expected
    assert json.loads(read.write()) == PLAN


def test_a_lowered_plan_is_replicated() -> None:
    lowered = plan.NativePlan.read(json.dumps(PLAN | {"instances": 3})).lower()
    assert (lowered.info().chunks, lowered.info().steps) == (3, 6)


def test_a_fault_is_reported_with_its_place() -> None:
    with pytest.raises(InvalidArgumentError, match=r"ranks\[0\]: has no 'groups'"):
        plan.NativePlan.read(json.dumps(PLAN | {"ranks": [{}]}))


MACHINE = Path(narrowcast.__file__).with_name("data") / "machines"


@pytest.mark.parametrize("path", sorted(MACHINE.glob("*.json")), ids=lambda path: str(path.stem))
def test_every_machine_can_be_simulated(path: Path) -> None:
    proved = plan.NativePlan.read(json.dumps(PROVED)).lower()
    report = proved.simulate(path.read_text(), piece_bytes=1 << 20, timeline=True)
    assert 3 < report["microseconds"] < 30
    assert report["sent_bytes"] == [0, 1 << 20]
    assert {(rank, group) for rank, group, *_ in report["timeline"]} == {(0, 0), (1, 0)}


def test_scheduling_merges_groups() -> None:
    """Rank 0 forwards what it has received, in a group of its own."""
    output = {"buffer": "output", "chunk": 0}
    forward = {"step": "copy", "after": [[0, 0]], "from": [output], "to": [{"channel": 1}]}
    receive = {"step": "copy", "from": [{"channel": 1}], "to": [output]}
    chain = PROVED | {
        "channels": [*PROVED["channels"], {"kind": "ring", "from": 0, "to": 2, "depth": 2}],
        "ranks": [
            {"groups": [*PROVED["ranks"][0]["groups"], {"steps": [forward]}]},
            PROVED["ranks"][1],
            {"groups": [{"steps": [receive]}]},
        ],
    }
    proved = plan.NativePlan.read(json.dumps(chain)).lower()
    merged, report = proved.schedule((MACHINE / "4xh200.json").read_text(), piece_bytes=1 << 20)
    assert (report["before"]["groups"], report["after"]["groups"]) == (4, 3)
    assert report["after"]["microseconds"] <= report["before"]["microseconds"]
    assert merged.verify()["verdict"] == "proved"


def test_verification_refutes_and_proves() -> None:
    report = plan.NativePlan.read(json.dumps(PLAN)).verify()
    # The root's output is not written.
    assert (report["verdict"], report["property"], report["rank"]) == ("refuted", "result", 1)
    ranks = json.loads(json.dumps(PLAN["ranks"]))
    ranks[1]["groups"][0]["steps"][0]["to"].append({"buffer": "output", "chunk": 0})
    report = plan.NativePlan.read(json.dumps(PLAN | {"ranks": ranks})).verify()
    assert report["verdict"] == "proved"
    assert (report["property"], report["message"], report["trace"]) == (None, "", [])
    assert (report["least_depth"], report["split_ok"], report["steps"]) == (1, True, 2)
