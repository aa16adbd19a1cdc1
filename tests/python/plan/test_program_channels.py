"""Programs: groups, channels, messages and accesses to other ranks that are written out."""

from __future__ import annotations

from narrowcast.plan import Program, channel, codec, group, loop, packets, ports
from program_steps import completes, steps


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
