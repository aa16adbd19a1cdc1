"""Predicted times of plans, on described machines."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from narrowcast._plan.simulation import MACHINES
from narrowcast.errors import InvalidArgumentError
from narrowcast.plan import Program, build, group, load, machines

EXAMPLES = Path(__file__).parents[3] / "examples" / "plans"


def example(name: str, ranks: int = 4) -> Program:
    return load(EXAMPLES / f"{name}.py", ranks=ranks)


def test_machines_are_listed_from_the_smallest():
    assert machines() == ("4xh200", "8xh200", "16xh200", "128xh200")


@pytest.mark.parametrize(
    ("ranks", "machine"), [(2, "4 H200"), (4, "4 H200"), (5, "8 H200"), (16, "16 H200 in 2 hosts")]
)
def test_the_smallest_machine_with_enough_gpus_is_the_default(ranks, machine):
    assert example("all_to_all", ranks).simulate(1 << 20).machine == machine


def test_longer_calls_take_longer():
    times = [example("ring").simulate(1 << shift).microseconds for shift in (10, 20, 26, 30)]
    assert times == sorted(times)
    assert times[0] < 100 < 1000 < times[-1]


def test_the_size_is_that_of_the_larger_buffer():
    gathered = example("put").simulate(4 << 20)
    # Each rank sends its own quarter to three others.
    assert gathered.sent_bytes == (3 << 20,) * 4
    assert gathered.nbytes == 4 << 20


def test_bandwidth_is_that_of_the_benchmarks():
    ring = example("ring", 8).simulate(1 << 30)
    assert ring.busbw_gb_per_s == pytest.approx((1 << 30) / ring.microseconds / 1e3 * 2 * 7 / 8)


def test_encoded_values_are_shorter_by_the_ratio():
    two_shot = example("two_shot")
    sent = [two_shot.simulate(64 << 20, ratio=ratio).sent_bytes[0] for ratio in (1.0, 0.5)]
    assert sent[1] == pytest.approx(sent[0] / 2, rel=0.01)
    usual = two_shot.simulate(64 << 20).sent_bytes[0]
    assert 0.6 * sent[0] < usual < 0.8 * sent[0]
    # A plan without a codec does not depend on it.
    ring = example("ring")
    assert ring.simulate(1 << 20, ratio=0.1).microseconds == ring.simulate(1 << 20).microseconds


def test_a_description_can_be_a_file(tmp_path):
    machine = json.loads((MACHINES / "4xh200.json").read_text())
    fast = tmp_path / "fast.json"
    fast.write_text(json.dumps(machine | {"name": "fast", "link_gbps": 10 * machine["link_gbps"]}))
    ring = example("ring")
    assert ring.simulate(1 << 28, machine=fast).microseconds < ring.simulate(1 << 28).microseconds
    assert ring.simulate(1, machine=str(fast)).machine == "fast"


def test_wrong_arguments_are_errors(tmp_path):
    ring = example("ring")
    with pytest.raises(InvalidArgumentError, match=r"nowhere is neither a file nor a known machine \(4xh200, "):
        ring.simulate(1, machine="nowhere")
    with pytest.raises(InvalidArgumentError, match=r"\.\./machines/4xh200 is neither a file"):
        ring.simulate(1, machine="../machines/4xh200")
    with pytest.raises(InvalidArgumentError, match="16 ranks, but the machine has 4 GPUs"):
        example("ring", 16).simulate(1, machine="4xh200")
    with pytest.raises(InvalidArgumentError, match="has 200 GPUs"):
        example("tree", 200).simulate(1)
    with pytest.raises(ValueError, match="nbytes is -1: it must not be negative"):
        ring.simulate(-1)
    with pytest.raises(TypeError, match=r"nbytes is 1\.5, not an integer"):
        ring.simulate(1.5)
    with pytest.raises(ValueError, match="ratio is 0: it must be positive"):
        ring.simulate(1, ratio=0)
    with pytest.raises(TypeError, match="ratio is '1', not a number"):
        ring.simulate(1, ratio="1")
    with pytest.raises(ValueError, match="max_groups is -1: it must not be negative"):
        ring.schedule(1, max_groups=-1)
    (tmp_path / "bits").write_bytes(b"\xff")
    with pytest.raises(InvalidArgumentError, match=r"/bits: not JSON"):
        ring.simulate(1, machine=tmp_path / "bits")
    (tmp_path / "machine.json").write_text("{}")
    for call in (ring.simulate, ring.schedule):
        with pytest.raises(InvalidArgumentError, match=r"/machine\.json: expected an object with"):
            call(1, machine=tmp_path / "machine.json")


def test_a_refuted_plan_is_not_simulated():
    p = Program("all_gather", 2)
    a, b = p.ranks
    a.output[0] = b.output[0] = a.input[0]
    b.output[1] = b.input[0]
    with pytest.raises(InvalidArgumentError, match="the plan is not proved"):
        p.simulate(1 << 20)


def test_the_trace_has_a_track_for_every_step_that_runs_at_the_same_time(tmp_path):
    hierarchical = example("hierarchical", 8).simulate(1 << 24)
    hierarchical.show(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) > 8
    for steps in tracks.values():
        steps.sort()
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(steps))
    assert max(end for steps in tracks.values() for _, end in steps) <= hierarchical.microseconds
    flows = [event for event in events if event["ph"] in "sf"]
    assert len(flows) == 2 * sum(event["ph"] == "f" for event in flows) > 0


@pytest.mark.parametrize("name", ["ring", "hierarchical"])
def test_the_image_fits_a_screen(tmp_path, name):
    pytest.importorskip("matplotlib")
    example(name, 16).simulate(1 << 22).show(tmp_path / "plan.png")
    assert max(struct.unpack(">II", (tmp_path / "plan.png").read_bytes()[16:24])) < 1600


def with_a_group_for_each_hop(ranks: int) -> Program:
    """An all-gather around a ring, with a group for each hop. Most of them only wait."""
    p = Program("all_gather", ranks)
    at = [r.input for r in p.ranks]
    for hop in range(ranks):
        for c in range(ranks):
            r = p.ranks[(c + hop) % ranks]
            with group(hop):
                r.output[c] = at[c]
            at[c] = r.output[c : c + 1]
    return p


def test_groups_that_wait_for_each_other_are_merged():
    p = with_a_group_for_each_hop(4)
    schedule = p.schedule(1 << 20)
    assert schedule.before.groups == 16
    assert schedule.after.groups < 16
    assert schedule.after.microseconds <= schedule.before.microseconds
    assert schedule.plan.verify().proved
    assert sum(len(rank.groups) for rank in schedule.plan.model.ranks) == schedule.after.groups
    first = schedule.plan.model.ranks[0].groups[0].steps[0]
    assert schedule.plan.site(first.origin).file == __file__


def test_plans_are_replicated_at_most_as_often_as_allowed():
    pairs = build("all_pairs", "all_gather", 4)
    once, twice = (pairs.schedule(1 << 28, max_instances=instances) for instances in (1, 2))
    assert (once.plan.model.chunks, twice.plan.model.chunks) == (1, 2)
    assert twice.after.groups < once.after.groups


def test_the_number_of_groups_can_be_limited():
    plan = with_a_group_for_each_hop(4).schedule(1 << 28, max_groups=1).plan
    assert [len(rank.groups) for rank in plan.model.ranks] == [1] * 4
    assert plan.verify().proved
