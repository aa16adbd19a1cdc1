"""Plans of a few bytes that would take minutes and gigabytes are neither proved nor refuted, and nothing runs them."""

from __future__ import annotations

import json
from typing import Any

import narrowcast
import numpy as np
import pytest
from narrowcast._plan.loading import read
from narrowcast.errors import InvalidArgumentError, UnsupportedError

TOO_MANY = "the plan is too large: 3000000 instances, steps in all: 6000000; at most 4000000 are supported"


def broadcast(**keys: Any) -> str:
    """A broadcast of two ranks."""
    send = {"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"buffer": "output", "chunk": 0}]}
    send["to"].append({"channel": 0})
    receive = {"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 0}]}
    ring = {"kind": "ring", "from": 0, "to": 1, "depth": 8}
    ranks = [{"groups": [{"steps": [step]}]} for step in (send, receive)]
    return json.dumps({"narrowcast_plan": 1, "operation": "broadcast", "channels": [ring], "ranks": ranks, **keys})


@pytest.mark.parametrize(
    "use",
    [
        lambda plan: plan.verify(),
        lambda plan: plan.simulate(1 << 20),
        lambda plan: plan.schedule(1 << 20),
        lambda plan: plan.export("msccl_xml"),
    ],
)
def test_too_many_instances_are_refused_before_there_are_any(use):
    with pytest.raises(UnsupportedError, match=TOO_MANY):
        use(read(broadcast(instances=3_000_000).encode(), "large.json"))


def test_too_many_chunks_have_no_verdict_and_are_not_loaded():
    large, small = broadcast(chunks=9_000_000), broadcast()
    report = read(large.encode(), "large.json").verify()
    assert report.verdict == "unsupported"
    reason = "the plan is too large: chunks of a buffer: 18000000; at most 16000000 are supported"
    assert reason in str(report.fault)
    with pytest.raises(UnsupportedError, match=reason):
        read(large.encode(), "large.json").simulate(1 << 20)
    assert read(small.encode(), "small.json").verify().proved
    one = json.loads(broadcast(instances=3_000_000))
    one["ranks"], one["channels"] = [{"groups": [{"steps": [{"step": "sync"}] * 2}]}], []
    with narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as comm:
        with pytest.raises(UnsupportedError, match=TOO_MANY):
            comm.load_plan(json.dumps(one), "float32")
        comm.all_reduce(np.ones(3, np.float32))


def test_plans_of_many_steps_are_not_scheduled():
    plan = read(broadcast(instances=130_000).encode(), "large.json")
    with pytest.raises(UnsupportedError, match="steps to schedule: 260000; at most 250000 are supported"):
        plan.schedule(1 << 20)


def test_the_command_says_that_a_plan_is_too_large(cli_here, tmp_path):
    (tmp_path / "large.json").write_text(broadcast(instances=3_000_000))
    done = cli_here("plan", "verify", "large.json")
    assert done.returncode == 2
    assert f"large.json: unsupported: {TOO_MANY}" in done.stdout.replace("\n    ", "")


def test_scratch_that_no_other_rank_accesses_is_limited():
    keep = {"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"buffer": "scratch", "chunk": 9}]}
    give = {"step": "copy", "from": keep["to"], "to": [{"buffer": "output", "chunk": 0}]}
    document = {"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [{"groups": [{"steps": [keep, give]}]}]}
    values = np.arange(5000, dtype=np.float32)
    with narrowcast.Communicator(narrowcast.unique_id(), 0, 1, scratch_bytes=1 << 16) as comm:
        for chunks in (10, 60_000):
            document["ranks"][0]["scratch_chunks"] = chunks
            with comm.load_plan(json.dumps(document), "float32") as loaded:
                out = np.zeros_like(values)
                loaded(values, out)
                assert np.array_equal(out, values)
        document["ranks"][0]["scratch_chunks"] = 70_000
        with pytest.raises(InvalidArgumentError, match="the plan needs at least 4480000 bytes for scratch chunks and"):
            comm.load_plan(json.dumps(document), "float32")
