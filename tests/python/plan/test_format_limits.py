"""What is said of exported plans that other libraries have no room for."""

from __future__ import annotations

import pytest
from msccl_documents import algo, gpu, step, tb
from narrowcast._plan.formats import FORMATS, exceeded_limits, read, write
from narrowcast._plan.model import Channel, Group, Operand, PlanModel, Rank, Step
from narrowcast.errors import UnsupportedError
from narrowcast.plan import Plan, Program, build, load

I0, O0 = Operand("input", 0), Operand("output", 0)


@pytest.mark.parametrize("form", FORMATS)
def test_small_plans_exceed_no_limit(form: str) -> None:
    assert exceeded_limits(write(build("ring", "all_gather", 4).model, form), form) == []


def test_an_export_names_the_line_of_what_it_cannot_express(tmp_path) -> None:
    (tmp_path / "p.py").write_text(
        "from narrowcast.plan import Program, codec\n"
        "plan = Program('all_gather', 2)\n"
        "with codec('window'):\n"
        "    for r in plan.ranks:\n"
        "        for peer in plan.ranks:\n"
        "            peer.output[r] = r.input[0]\n"
    )
    plan = load(tmp_path / "p.py")
    for form in FORMATS[1:]:
        with pytest.raises(UnsupportedError, match=r"^rank 0, group 0, step 0 \(.*p\.py:6\): MSCCL.* has no codecs"):
            plan.export(form)


def test_instances_are_replicated_before_an_export() -> None:
    plan = Program("all_gather", 2, instances=3)
    for r in plan.ranks:
        for peer in plan.ranks:
            peer.output[r] = r.input[0]
    assert read(plan.export("json").encode()).instances == 3
    for form in FORMATS[1:]:
        again = Plan(read(plan.export(form).encode()))
        assert again.verify().proved
        assert again.model.chunks == 3


def test_a_large_ring_is_too_large_for_all() -> None:
    ring = build("ring", "all_reduce", 64).model
    assert exceeded_limits(write(ring, "json"), "json") == []
    assert exceeded_limits(write(ring, "msccl_xml"), "msccl_xml") == [
        "rank 0 thread block 0 has 127 steps; there is room in RCCL for 64",
    ]
    assert exceeded_limits(write(ring, "mscclpp_json"), "mscclpp_json") == [
        "rank 0 thread block 0 has 823 operations; there is room in MSCCL++ for 64"
    ]


@pytest.mark.parametrize(
    ("blocks", "steps", "count", "message"),
    [
        (1, 64, 71, ""),
        (1, 65, 1, "rank 1 thread block 0 has 65 steps; there is room in RCCL for 64"),
        (1, 257, 1, "rank 1 thread block 0 has 257 steps; there is room in RCCL for 64 and in MSCCL for 256"),
        (65, 1, 1, "rank 1 has 65 thread blocks; there is room in RCCL for 64"),
        (217, 1, 1, "rank 1 has 217 thread blocks; there is room in RCCL for 64 and in MSCCL for 216"),
        (1, 1, 72, "rank 1 thread block 0 has 72 chunks in a step; there is room in RCCL for 71 and in MSCCL for 71"),
    ],
)
def test_limits_of_xml(blocks: int, steps: int, count: int, message: str) -> None:
    rows = "".join(step(number, "cpy", "i", 0, "o", 0, cnt=count) for number in range(steps))
    text = algo(2, gpu(0) + gpu(1, "".join(tb(number, rows) for number in range(blocks))), count)
    assert exceeded_limits(text, "msccl_xml") == ([message] if message else [])


def test_limits_of_the_elements_and_connections_of_a_rank() -> None:
    rows = "".join(step(number, "cpy", "i", 0, "o", 0) for number in range(64))
    blocks = [tb(number, rows, 1, 1, number // 32) for number in range(63)]
    # <algo>, two <gpu>, and 65 for each <tb>.
    assert exceeded_limits(algo(2, gpu(0, "".join(blocks[:62])) + gpu(1, "".join(blocks[:62]))), "msccl_xml") == []
    (message,) = exceeded_limits(algo(2, gpu(0, "".join(blocks)) + gpu(1)), "msccl_xml")
    assert message == "rank 0 has 4098 elements; there is room in RCCL for 4095"
    alone = "".join(tb(number, "", 1, -1, 2) for number in range(33))
    (message,) = exceeded_limits(algo(2, gpu(0) + gpu(1, alone)), "msccl_xml")
    assert message == "rank 1 has 33 thread blocks that send on channel 2; there is room in RCCL for 32"


def plan_of(*groups: list[Step], channels: int = 0, barriers: int = 0) -> Plan:
    everyone = list(range(len(groups)))
    rank = Rank([Group(steps) for steps in groups], 4, [everyone] * barriers)
    links = [Channel("memory", 0, 1) for _ in range(channels)]
    return PlanModel("all_reduce", [rank, Rank()], links, threads="independent")


@pytest.mark.parametrize("more", [0, 1])
def test_limits_of_mscclpp(more: int) -> None:
    def said(plan: Plan) -> list[str]:
        return exceeded_limits(write(plan, "mscclpp_json"), "mscclpp_json")

    copies = [Step("copy", [I0], [O0]) for _ in range(64 + more)]
    assert said(plan_of(copies)) == more * ["rank 0 thread block 0 has 65 operations; there is room in MSCCL++ for 64"]

    signals = [Step("signal", channels=[number]) for number in range(16 + more)]
    expected = ["rank 0 thread block 0 has 17 memory channels; there is room in MSCCL++ for 16"]
    assert said(plan_of(signals, channels=16 + more)) == more * expected

    waits = [Step("barrier", barrier=number) for number in range(16 + more)]
    assert said(plan_of(waits, waits, barriers=16 + more)) == more * [
        "rank 0 has 17 barriers; there is room in MSCCL++ for 16"
    ]


def test_operations_of_a_pipeline_count() -> None:
    body = [Step("copy", [I0], [O0]) for _ in range(62)]
    loop = Step("loop", unit_bytes=64, body=body)
    (message,) = exceeded_limits(write(plan_of([loop]), "mscclpp_json"), "mscclpp_json")
    assert message.startswith("rank 0 thread block 0 has 65 operations")  # and a nop between iterations, and its own
