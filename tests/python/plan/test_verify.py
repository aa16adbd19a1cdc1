"""Programs are proved, or refuted at the line that is wrong."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrowcast._native.plan import NativePlan
from narrowcast.plan import Program, codec, group, load
from test_program_order import Written

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "plans").glob("*.py"))


def exchange(ranks: int = 2, *, arrived: bool = True, begun: bool = True, chunk: int = 0) -> Program:
    """An all-gather by puts. Without `begun` a peer may still be in an earlier call; without `arrived`, unordered."""
    p = Program("all_gather", ranks)
    for r in p.ranks:
        others = [peer for peer in p.ranks if peer is not r]
        if begun:
            r.signal(*others, relaxed=True)
            r.wait(*others, relaxed=True)
        for peer in others:
            r.put(r.input[0], peer.output[(r.index + chunk) % ranks])  # the put
        r.output[r] = r.input[0]
        if arrived:
            r.signal(*others)
            r.wait(*others)
    return p


PUT = inspect.getsourcelines(exchange)[1] + 9


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_proved(path, ranks):
    report = load(path, ranks=ranks).verify()
    assert report.proved, report
    assert report.split_fault is None
    assert report.same_everywhere


def test_the_report_of_a_proof_has_its_facts():
    report = load(EXAMPLES[0].with_name("two_shot.py"), ranks=4).verify()
    assert (report.verdict, report.fault, report.least_depth, report.roundings) == ("proved", None, 2, 1)
    assert report.rank_order
    assert report.steps == 28
    assert str(report) == "proved; rings of 2 messages suffice; values are rounded once, in rank order"


def test_rings_that_are_too_short_are_refuted():
    report = load(EXAMPLES[0].with_name("halving.py"), ranks=8).verify(depth=3)
    assert (report.verdict, report.fault.property) == ("refuted", "deadlock")
    assert report.least_depth == 4


def test_a_put_that_nobody_knows_of_is_refuted_at_its_line():
    assert exchange().verify().proved
    report = exchange(begun=False).verify()
    assert (report.verdict, report.fault.property) == ("refuted", "race")
    assert (report.fault.where.site.file, report.fault.where.site.line) == (__file__, PUT)
    assert re.match(rf"refuted: race: rank \d, group 0, step \d \(.*test_verify.py:{PUT}\): ", str(report))
    assert len(str(report).splitlines()) == 1 + len(report.fault.trace)
    assert any(step.site is not None and step.site.line == PUT for step in report.fault.trace)


def test_a_call_that_ends_before_its_values_are_there_is_refuted():
    assert not exchange(arrived=False).verify().proved


def test_a_wrong_result_is_refuted():
    report = exchange(3, chunk=1).verify()
    assert report.verdict == "refuted"
    assert report.fault.property in ("result", "race")


def test_a_plan_of_a_file_has_no_lines(tmp_path):
    exchange(begun=False).save(tmp_path / "plan.json")
    report = load(tmp_path / "plan.json").verify()
    assert report.fault.where.site is None
    assert f"(origin {PUT})" in str(report)


def test_encoded_messages_are_proved():
    p = Program("all_reduce", 3)
    with codec("window"):
        for r in p.ranks:
            r.output[0] = r.reduce(peer.input[0] for peer in p.ranks)
    report = p.verify()
    assert report.proved
    assert report.inexact_encodings == 0


def gathered(in_place: str | None, first: bool) -> Program:
    """An all-gather by gets, in which each rank stores its own chunk before or after the others may read it."""
    p = Program("all_gather", 2, in_place=in_place)
    for r, peer in (p.ranks, p.ranks[::-1]):
        if first:
            r.output[r] = r.input[0]
        r.signal(peer)
        r.wait(peer)
        r.output[peer] = r.get(peer.input[0])
        if not first:
            r.output[r] = r.input[0]
        r.signal(peer, relaxed=True)
        r.wait(peer, relaxed=True)
    return p


@pytest.mark.parametrize(("first", "expected"), [(True, "either"), (False, "no")])
def test_programs_that_access_other_ranks_work_in_place_if_that_is_proved(first, expected):
    p = gathered(None, first)
    assert p.model.in_place == expected
    assert p.verify().proved


def test_a_fault_in_place_is_called_so():
    report = gathered("either", first=False).verify()
    assert report.fault.property == "race"
    assert report.fault.where.text.endswith(", in a call in place")
    assert gathered("no", first=False).verify().proved


def test_what_is_neither_proved_nor_refuted_is_said():
    """Two groups wait for the same semaphore, and only the second one's signal lets the other rank go on."""
    p = Program("all_gather", 2)
    for r, peer in (p.ranks, p.ranks[::-1]):
        for number in (1, 2):
            with group(number):
                r.wait(peer)
        with group(3):
            r.signal(peer)
        with group(1):
            r.signal(peer)
        for other in p.ranks:
            other.output[r] = r.input[0]
    report = p.verify()
    assert report.verdict == "unsupported"
    assert str(report).startswith("unsupported: several groups wait on the same channel")


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 40))
def test_programs_without_synchronisation_have_no_deadlocks_and_no_races(seed):
    """Random ones do not compute anything sensible. Not lowered: this is about the steps that the program has."""
    plan = NativePlan.read(Written(seed, None).program.json())
    report = plan.verify()
    assert report["property"] in (None, "result"), report
    split = report.get("split")
    assert split is None or split["property"] == "result", report
