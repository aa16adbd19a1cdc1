"""Programs: which steps statements become."""

from __future__ import annotations

import pytest
from narrowcast._plan.timeline import timeline
from narrowcast.plan import Program, codec
from program_steps import completes, steps


def test_an_assignment_on_one_rank_is_a_copy():
    p = Program("all_reduce", 1, chunks=4)
    p.ranks[0].output[1:3] = p.ranks[0].input[1:3]
    assert steps(p) == ["0 copy input[1:3] -> output[1:3]"]


def test_an_assignment_between_ranks_is_a_message():
    p = Program("all_gather", 2)
    a, b = p.ranks
    b.output[0] = a.input[0]
    assert steps(p, 0) == ["0 copy input[0] -> to rank 1"]
    assert steps(p, 1) == ["0 copy from rank 0 -> output[0]"]
    assert [(one.kind, one.sender, one.receiver, one.depth) for one in p.model.channels] == [("ring", 0, 1, 8)]


def test_ranks_send_before_they_wait():
    """Although rank 0 reduces before rank 1 in the program."""
    p = Program("all_reduce", 2)
    for r in p.ranks:
        r.output[0] = r.reduce(peer.input[0] for peer in p.ranks)
    assert steps(p, 0) == ["0 copy input[0] -> to rank 1", "1 reduce input[0], from rank 1 -> output[0]"]
    assert steps(p, 1) == ["0 copy input[0] -> to rank 0", "1 reduce from rank 0, input[0] -> output[0]"]
    assert timeline(p.model).end == 2


def test_values_that_several_ranks_need_are_encoded_once():
    p = Program("all_gather", 3)
    with codec("window"):
        for r in p.ranks:
            for peer in p.ranks:
                peer.output[r] = r.input[0]
    assert steps(p)[0] == "0 copy input[0] -> output[0], to rank 1 (window), to rank 2 (window)"


def test_a_result_is_stored_and_sent_by_the_step_that_computes_it():
    p = Program("all_reduce", 2)
    a, b = p.ranks
    a.output[0] = b.output[0] = a.reduce(a.input[0], b.input[0])
    assert steps(p, 0) == ["0 reduce input[0], from rank 1 -> output[0], to rank 1"]
    assert a.output[0] is not a.output[0]


def test_what_is_received_is_passed_on_by_the_same_step():
    p = Program("broadcast", 3)
    for r, following in zip(p.ranks, p.ranks[1:], strict=False):
        following.output[0] = r.input[0] if r.index == 0 else r.output[0]
    assert steps(p, 1) == ["0 copy from rank 0 -> output[0], to rank 2"]


def test_a_result_that_is_used_later_at_its_rank_is_kept_in_scratch():
    p = Program("all_reduce", 2)
    a, b = p.ranks
    first = a.reduce(a.input[0], b.input[0])
    second = a.reduce(b.input[0], a.input[0])
    a.output[0] = a.reduce(first, second)
    assert steps(p) == [
        "0 reduce input[0], from rank 1 -> scratch[0]",
        "1 reduce from rank 1, input[0] -> scratch[1]",
        "2 reduce scratch[0], scratch[1] -> output[0]",
    ]
    assert p.model.ranks[0].scratch_chunks == 2


def test_a_result_is_not_combined_with_a_store_that_others_must_precede():
    """The output is read between the reduction and the assignment."""
    p = Program("all_reduce", 2, chunks=2, in_place="no")
    a, b = p.ranks
    a.output[0] = a.input[0]
    total = a.reduce(a.input[1], b.input[1])
    a.output[1] = a.output[0]
    a.output[0] = total
    assert steps(p) == [
        "0 copy input[0] -> output[0], output[1]",
        "1 reduce input[1], from rank 1 -> output[0]",
    ]


def test_copies_of_overwritten_chunks_are_of_what_they_had():
    p = Program("all_reduce", 2, chunks=2)
    a = p.ranks[0]
    x = a.scratch()
    x[0] = a.input[0]
    a.output[0] = x[0]
    x[0] = a.input[1]
    a.output[1] = x[0]
    assert steps(p) == [
        "0 copy input[0] -> scratch[0], output[0]",
        "1 copy input[1] -> scratch[0], output[1]",
    ]


def test_a_ring_passes_on_every_message_in_the_step_that_receives_it():
    p = Program("all_gather", 4)
    at = [r.input[0] for r in p.ranks]
    for hop in range(1, 4):
        for c in range(4):
            r = p.ranks[(c + hop) % 4]
            r.output[c] = at[c]
            at[c] = r.output[c]
    assert steps(p) == [
        "0 copy input[0] -> to rank 1",
        "1 copy from rank 3 -> output[3], to rank 1",
        "2 copy from rank 3 -> output[2], to rank 1",
        "3 copy from rank 3 -> output[1]",
    ]
    assert timeline(p.model).end == 4


def test_phases_that_are_written_rank_by_rank_do_not_wait_for_each_other():
    p = Program("all_reduce", 4, chunks=4)
    for r in p.ranks:
        total = r.reduce(peer.input[r] for peer in p.ranks)
        for peer in p.ranks:
            peer.output[r] = total
    assert [kind.split()[1] for kind in steps(p, 3)] == ["copy"] * 3 + ["reduce"] + ["copy"] * 3
    assert timeline(p.model).end == 7


def test_senders_wait_for_free_slots():
    p = Program("all_gather", 2, chunks=5, depth=2)
    for c in range(5):
        for r in p.ranks:
            p.ranks[1 - r.index].output[r.index * 5 + c] = r.input[c]
    assert completes(p)
    kinds = "".join("S" if "to rank" in step else "R" for step in steps(p))
    assert kinds == "SSRRSSRRSR"


def test_long_messages_are_divided_so_that_their_chunks_fit_the_ring():
    p = Program("all_gather", 2, chunks=5, depth=2)
    for r in p.ranks:
        for peer in p.ranks:
            peer.output.piece(r)[:] = r.input
    assert completes(p)
    assert "copy input[4] -> to rank 1" in " ".join(steps(p))


def test_values_of_the_input_are_those_of_the_call_also_in_place():
    """Rank 0 overwrites chunk 0 of its output in the first statement, and needs the input after that."""
    p = Program("all_reduce", 2, chunks=2)
    a, b = p.ranks
    a.output[0] = b.input[0]
    b.output[0] = a.input[0]
    assert p.model.in_place == "either"
    assert steps(p) == ["0 copy input[0] -> to rank 1", "1 copy from rank 1 -> output[0]"]


def test_a_program_that_cannot_work_in_place_says_so():
    p = Program("all_reduce", 1, chunks=2)
    r = p.ranks[0]
    r.output[0] = r.input[1]
    r.output[1] = r.input[0]
    assert p.model.in_place == "no"


def test_a_step_that_would_overwrite_part_of_its_source_does_not_work_in_place():
    p = Program("all_reduce", 1, chunks=3)
    r = p.ranks[0]
    r.output[1:3] = r.input[0:2]
    assert p.model.in_place == "no"


def test_a_reduction_is_not_stored_over_part_of_its_operands_by_the_same_step():
    p = Program("all_reduce", 1, chunks=3, in_place="no")
    r = p.ranks[0]
    r.output[:] = r.input
    r.output[1:3] = r.reduce(r.output[0:2], r.input[0:2])
    assert steps(p) == [
        "0 copy input[0:3] -> output[0:3]",
        "1 reduce output[0:2], input[0:2] -> scratch[0:2]",
        "2 copy scratch[0:2] -> output[1:3]",
    ]


def test_more_messages_than_a_ring_holds_are_reduced_one_after_another():
    p = Program("all_reduce", 2, chunks=4, depth=2)
    a, b = p.ranks
    a.output[0] = a.reduce(*b.input)
    assert completes(p)
    assert steps(p)[-1] == "4 reduce scratch[0], scratch[1], scratch[2], scratch[3] -> output[0]"


def test_steps_have_the_lines_of_their_statements():
    p = Program("all_reduce", 2)
    a, b = p.ranks
    b.output[0] = a.input[0]
    (step,) = p.model.ranks[0].groups[0].steps
    site = p.site(step.origin)
    assert site is not None
    assert (site.file, site.line) == (__file__, step.origin)
    assert step.origin == test_steps_have_the_lines_of_their_statements.__code__.co_firstlineno + 3
    assert p.site(0) is p.site(10**9) is None


def test_a_program_can_be_continued_after_it_was_read():
    p = Program("all_reduce", 1, chunks=2)
    r = p.ranks[0]
    r.output[0] = r.input[0]
    assert p.model.step_count() == 1
    r.output[1] = r.input[1]
    assert p.model.step_count() == 2


def test_the_arguments_of_a_program_are_those_of_the_plan():
    p = Program(
        "gather",
        4,
        chunks=2,
        name="g",
        root=3,
        instances=2,
        in_place="no",
        scratch_copies=2,
        min_bytes=16,
        max_bytes=1024,
    )
    model = p.model
    assert (model.operation, model.name, model.root, model.chunks, model.instances) == ("gather", "g", 3, 2, 2)
    assert (model.in_place, model.scratch_copies, model.min_bytes, model.max_bytes) == ("no", 2, 16, 1024)
    assert [len(r.output) for r in p.ranks] == [0, 0, 0, 8]
    assert [len(r.input) for r in p.ranks] == [2] * 4


def test_chunks_are_used_like_lists():
    p = Program("all_reduce", 2, chunks=4)
    whole = p.ranks[1].input
    assert len(whole) == len(list(whole)) == 4
    assert repr(whole[-1]) == "<input[3] of rank 1>"
    assert repr(whole[1:]) == "<input[1:4] of rank 1>"
    assert repr(whole[1:][1]) == "<input[2] of rank 1>"
    assert repr(p.ranks[1].reduce(whole[0:2], whole[2:4])) == "<2 chunks at rank 1>"


@pytest.mark.parametrize("ranks", [2, 5, 16])
def test_the_order_of_statements_does_not_delay_an_exchange(ranks):
    p = Program("all_to_all", ranks)
    for r in p.ranks:
        for peer in p.ranks:
            peer.output[r] = r.input[peer]
    assert timeline(p.model).end <= 2 * ranks
