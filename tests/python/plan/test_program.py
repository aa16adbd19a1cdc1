"""Programs: which steps statements become."""

from __future__ import annotations

import pytest
from narrowcast._plan.text import listing
from narrowcast._plan.timeline import timeline
from narrowcast.plan import Plan, Program, channel, codec, group, loop, packets, ports


def steps(plan: Plan, rank: int = 0) -> list[str]:
    """The steps of a rank, with those of groups after each other."""
    lines = [line for line in listing(plan.model, [rank]) if line.startswith("    ")]
    return [" ".join(line.split()) for line in lines]


def completes(plan: Plan) -> bool:
    return not timeline(plan.model).blocked


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


def test_steps_of_another_group_wait_for_what_they_need():
    p = Program("all_reduce", 2, chunks=2, in_place="no")
    a = p.ranks[0]
    x = a.scratch(2)
    x[0] = a.input[0]
    x[1] = a.input[1]
    with group("out"):
        a.output[:] = x
        a.output[0] = x[0]
    x[0] = a.input[1]
    assert steps(p) == [
        "0 copy input[0] -> scratch[0]",
        "1 copy input[1] -> scratch[1]",
        "2 copy input[1] -> scratch[0]; after 1.1",
        "0 copy scratch[0:2] -> output[0:2]; after 0.1",
        "1 copy scratch[0] -> output[0]",
    ]
    assert completes(p)


def test_groups_have_rings_of_their_own():
    p = Program("all_reduce", 2, chunks=2)
    a, b = p.ranks
    for c in range(2):
        with group(c):
            b.output[c] = a.input[c]
    assert [len(rank.groups) for rank in p.model.ranks] == [2, 2]
    assert len(p.model.channels) == 2


def test_named_channels_are_other_channels():
    p = Program("all_reduce", 2, chunks=2)
    a, b = p.ranks
    b.output[0] = a.input[0]
    with channel("second"), packets():
        b.output[1] = a.input[1]
    assert [one.packets for one in p.model.channels] == [False, True]


def test_explicit_messages_keep_the_order_in_which_they_are_written():
    """Each rank is written as one program, the receiver first."""
    p = Program("all_reduce", 2, chunks=2)
    a, b = p.ranks
    b.output[0] = b.receive(a)
    b.output[1] = b.reduce(b.receive(a), b.input[1])
    a.output[0] = a.input[0]
    a.send(a.input[0], b)
    a.send(a.input[1], b)
    assert steps(p, 0) == ["0 copy input[0] -> output[0], to rank 1", "1 copy input[1] -> to rank 1"]
    assert steps(p, 1) == ["0 copy from rank 0 -> output[0]", "1 reduce from rank 0, input[1] -> output[1]"]
    assert completes(p)


def test_reductions_of_explicit_messages_keep_their_order():
    """Rank 1 could send before rank 0 does."""
    p = Program("all_reduce", 3, chunks=2)
    a, b, c = p.ranks
    b.send(b.reduce(b.receive(c), b.input[0]), a)
    c.send(c.input[0], b)
    c.send(c.input[1], a)
    a.output[0] = a.reduce(a.receive(b), a.input[0])
    a.output[1] = a.reduce(a.receive(c), a.input[1])
    assert steps(p, 0) == ["0 reduce from rank 1, input[0] -> output[0]", "1 reduce from rank 2, input[1] -> output[1]"]


def test_a_received_message_that_is_used_twice_is_kept():
    p = Program("all_reduce", 2, chunks=2)
    a, b = p.ranks
    a.send(a.input[0:2], b)
    got = b.receive(a, 2)
    b.output[:] = b.reduce(got, b.input)
    b.output[:] = b.reduce(got, b.output)
    assert steps(p, 1)[0] == "0 copy from rank 0 -> scratch[0:2]"


def test_signals_and_waits_keep_their_places():
    p = Program("all_gather", 2)
    a, b = p.ranks
    for r, peer in ((a, b), (b, a)):
        r.signal(peer, relaxed=True)
        r.wait(peer, relaxed=True)
        r.put(r.input[0], peer.output[r])
        r.output[r] = r.input[0]
        r.flush(peer)
        r.signal(peer)
        r.wait(peer)
    assert steps(p) == [
        "0 signal rank 1, relaxed",
        "1 wait for rank 1, relaxed",
        "2 copy input[0] -> output[0] of rank 1, output[0]",
        "3 flush rank 1",
        "4 signal rank 1",
        "5 wait for rank 1",
    ]
    assert completes(p)


def test_ports_are_channels_of_their_own():
    p = Program("all_gather", 2)
    a, b = p.ranks
    a.signal(b)
    with ports():
        a.signal(b)
    assert [one.kind for one in p.model.channels] == ["memory", "port"]


def test_a_get_is_an_operand_of_the_reduction_that_uses_it():
    p = Program("all_reduce", 3)
    a = p.ranks[0]
    a.output[0] = a.reduce(a.input[0], *(a.get(peer.input[0]) for peer in p.ranks[1:]))
    assert steps(p) == ["0 reduce input[0], input[0] of rank 1, input[0] of rank 2 -> output[0]"]


def test_scratch_of_packets_is_written_and_read_as_packets():
    p = Program("all_reduce", 2)
    a, b = p.ranks
    with codec("window"):
        inbox = b.scratch(2, packets=True)
    b.output[0] = b.reduce(inbox[1], b.input[0])
    a.put(a.input[0], inbox[1])
    assert steps(p, 0) == ["0 copy input[0] -> scratch[1] of rank 1, packets (window)"]
    assert steps(p, 1) == ["0 reduce scratch[1], packets (window), input[0] -> output[0]"]
    assert completes(p)


def test_a_switch_reduces_and_stores_on_all_ranks():
    p = Program("all_reduce", 3, chunks=3)
    s = p.switch()
    for r in p.ranks:
        r.put(r.get(s.input[r]), s.output[r])
    assert steps(p, 2) == ["0 copy input[2] of ranks 0, 1, 2 -> output[2] of ranks 0, 1, 2"]
    assert p.model.channels[0].ranks == [0, 1, 2]


def test_a_loop_repeats_the_steps_of_each_rank():
    p = Program("all_gather", 2)
    with loop(65536):
        for r in p.ranks:
            for peer in p.ranks:
                peer.output[r] = r.input[0]
    p.ranks[0].output[0] = p.ranks[0].output[1]
    assert steps(p) == [
        "0 loop over parts of 65536 bytes",
        "copy input[0] -> output[0], to rank 1",
        "copy from rank 1 -> output[1]",
        "1 copy output[1] -> output[0]",
    ]
    assert completes(p)


def test_barriers_and_semaphores_join_groups():
    p = Program("all_reduce", 1, chunks=2)
    r = p.ranks[0]
    semaphore = r.semaphore(initial=1)
    with group("a"):
        semaphore.wait()
        r.output[0] = r.input[0]
        semaphore.signal()
        r.barrier("a", "b")
    with group("b"):
        r.output[1] = r.input[1]
    assert steps(p) == [
        "0 wait for semaphore 0",
        "1 copy input[0] -> output[0]",
        "2 signal semaphore 0",
        "3 barrier of groups 0, 1",
        "0 barrier of groups 0, 1",
        "1 copy input[1] -> output[1]",
    ]
    assert p.model.ranks[0].barriers == [[0, 1]]
    assert completes(p)


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
