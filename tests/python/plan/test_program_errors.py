"""Programs: mistakes are errors that point to the line of the statement."""

from __future__ import annotations

import inspect
import re

import pytest
from narrowcast.errors import InvalidArgumentError
from narrowcast.plan import PlanError as Error
from narrowcast.plan import Program, channel, codec, group, loop

NAME = re.escape(__file__.rsplit("/", 1)[-1])


def line_of(function, text: str) -> int:
    """The line of the only statement of a function that contains a text."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return first + offset


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_reduced", 2), "'all_reduced' is not an operation"),
        (("send", 2), "no plans for send"),
        (("all_to_all_v", 2), "no plans for all_to_all_v"),
        (("all_reduce", 0), "ranks must be 1 to 1024, not 0"),
        (("all_reduce", 1025), "ranks must be 1 to 1024, not 1025"),
        (("broadcast", 2, {"root": 2}), "root 2"),
        (("all_reduce", 2, {"root": 1}), "all_reduce has no root, so root cannot be 1"),
        (("all_gather", 2, {"root": 2}), "all_gather has no root, so root cannot be 2"),
        (("all_reduce", 2, {"chunks": 0}), "chunks must be positive"),
        (("all_reduce", 2, {"instances": 0}), "instances must be positive"),
        (("all_reduce", 2, {"depth": -1}), "depth must be positive"),
        (("all_reduce", 2, {"scratch_copies": 3}), "scratch_copies"),
        (("all_reduce", 2, {"in_place": "maybe"}), "in_place"),
        (("all_to_all", 2, {"in_place": "yes"}), "all_to_all does not work in place"),
        (("all_reduce", 2, {"min_bytes": 2, "max_bytes": 1}), "min_bytes is 2"),
        (("all_reduce", 2, {"min_bytes": -2}), "negative"),
        (("all_reduce", "2"), "ranks must be a whole number, not '2'"),
        (("broadcast", 2, {"root": 0.5}), "root must be a whole number, not 0.5"),
        (("all_reduce", 2, {"chunks": 1.5}), "chunks must be a whole number"),
        (("all_reduce", 2, {"depth": None}), "depth must be a whole number"),
        (("all_reduce", 2, {"max_bytes": "1M"}), "max_bytes must be a whole number"),
    ],
)
def test_arguments_of_a_program_are_checked(arguments, message):
    operation, ranks, *options = arguments
    with pytest.raises(Error, match=rf"{NAME}:\d+: .*{message}"):
        Program(operation, ranks, **(options[0] if options else {}))


def one_step(statement):
    p = Program("all_reduce", 2, chunks=4)
    statement(p, *p.ranks)
    return p


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (lambda p, a, b: a.input[4], "the input of rank 0, of 4 chunks, has no chunk 4"),
        (lambda p, a, b: a.input[1:3][2], "a part of the input of rank 0, of 2 chunks, has no chunk 2"),
        (lambda p, a, b: a.input[0:5], "no chunk 5"),
        (lambda p, a, b: a.input[0:4:2], "step cannot be 2"),
        (lambda p, a, b: a.input[0:4:0], "step cannot be 0"),
        (lambda p, a, b: a.input.__setitem__(0, b.input[0]), "the input cannot be written"),
        (lambda p, a, b: a.output.__setitem__(0, b.input[0:2]), "different numbers of chunks: 1, 2"),
        (lambda p, a, b: a.output.__setitem__(slice(1, 1), b.input[1:1]), "no chunks"),
        (lambda p, a, b: a.output.__setitem__(0, 7), "chunks such as r.input.0. are expected, not int"),
        (lambda p, a, b: a.output.__setitem__(0, Program("all_reduce", 2).ranks[0].input[0]), "another program"),
        (lambda p, a, b: a.reduce(a.input[0], b.input[0]).__setitem__(0, a.input[0]), "result of a statement cannot"),
        (lambda p, a, b: a.output.__setitem__(slice(0, 2), a.output[1:3]), "source and destination overlap"),
        (lambda p, a, b: a.reduce(), "a reduction needs operands"),
        (lambda p, a, b: a.reduce(5), "chunks to reduce are expected, not 5"),
        (lambda p, a, b: a.input["a"], "the number of a chunk must be a whole number, not 'a'"),
        (lambda p, a, b: a.input[0:"a"], "a bound of a slice must be a whole number, not 'a'"),
        (lambda p, a, b: p.switch(5), "ranks of a switch are expected, not 5"),
        (lambda p, a, b: a.reduce(a.input[0], b.input), "different numbers of chunks: 1, 4"),
        (lambda p, a, b: a.output.piece(0), "a piece for each rank"),
        (lambda p, a, b: a.scratch(0), "scratch needs a positive number"),
        (
            lambda p, a, b: a.put(b.input[0], b.output[0]),
            "rank 0 can only send what is on it, not <input.0. of",
        ),
        (lambda p, a, b: b.send(a.copy(a.input[0]), a), "rank 1 can only send what is on it, not <1 chunk at rank 0>"),
        (lambda p, a, b: a.put(a.input[0], a.output[0]), "rank 0 has no channel to itself"),
        (lambda p, a, b: a.put(a.input[0], b.input[0]), "the input cannot be written"),
        (lambda p, a, b: a.get(a.input[0]), "rank 0 has no channel to itself"),
        (lambda p, a, b: a.signal(), "signal needs at least one rank"),
        (lambda p, a, b: a.signal(2), "there is no rank 2, only 2"),
        (lambda p, a, b: a.signal("1"), "a rank must be a whole number, not '1'"),
        (lambda p, a, b: a.signal(Program("all_reduce", 2).ranks[1]), "another program"),
        (lambda p, a, b: a.send(a.input[0:0], b), "no chunks"),
        (lambda p, a, b: a.copy(b.input[0:0]), "no chunks"),
        (lambda p, a, b: a.get(b.input[0:0]), "no chunks"),
        (lambda p, a, b: a.receive(b, 0), "a positive number of chunks, not 0"),
        (lambda p, a, b: a.receive(b, 1.5), "a whole number, not 1.5"),
        (lambda p, a, b: a.barrier([0, 1]), r"the name of a group cannot be \[0, 1\]"),
        (lambda p, a, b: p.switch([0, 2]), "there is no rank 2, only 2"),
        (lambda p, a, b: group(1.5), "the name of a group cannot be 1.5"),
        (lambda p, a, b: channel(5), "the name of a channel cannot be 5"),
        (lambda p, a, b: codec(5), "the name of a codec cannot be 5"),
        (lambda p, a, b: loop("64"), "unit_bytes must be a whole number, not '64'"),
        (lambda p, a, b: a.barrier("a"), "at least 2 groups"),
        (lambda p, a, b: a.semaphore(-1), "cannot begin with -1"),
        (lambda p, a, b: p.switch([a]), "a switch needs at least 2 ranks"),
        (lambda p, a, b: p.switch().output.__setitem__(0, a.input[0]), "written by put"),
        (lambda p, a, b: codec("winodw"), "winodw"),
        (lambda p, a, b: loop(0), "positive number of bytes"),
    ],
)
def test_a_wrong_statement_is_an_error_at_its_line(statement, message):
    with pytest.raises(Error, match=message) as raised:
        one_step(statement)
    assert raised.value.site.file == __file__
    assert raised.value.site.line == statement.__code__.co_firstlineno
    assert isinstance(raised.value, InvalidArgumentError)


def nested_loops(p, a, b):
    with loop(64), loop(128):
        pass


def barrier_in_loop(p, a, b):
    with loop(64):
        a.barrier("x", "y")


def groups_in_a_loop(p, a, b):
    x = a.scratch()
    with loop(64):
        x[0] = a.input[0]
        with group(1):
            a.output[0] = x[0]  # here


def reads_scratch(p, a, b):
    a.output[0] = a.scratch()[0]  # here


def reads_output(p, a, b):
    b.output[0] = a.output[1]  # here


def unused(p, a, b):
    a.reduce(a.input[0], b.input[0])  # here


def unreceived(p, a, b):
    b.output[0] = a.input[0]
    a.send(a.input[0], b)  # here


def unsent(p, a, b):
    a.output[0] = a.receive(b)  # here


def other_count(p, a, b):
    a.send(a.input[0:2], b)
    b.output[0:3] = b.receive(a, 3)  # here


def other_codec(p, a, b):
    with codec("window"):
        a.send(a.input[0], b)
    b.output[0] = b.receive(a)  # here


def other_group(p, a, b):
    a.send(a.input[0], b)
    with group(1):
        a.send(a.input[1], b)  # here
    b.output[0] = b.receive(a)
    b.output[1] = b.receive(a)


def other_loop(p, a, b):
    with loop(64):
        a.send(a.input[0], b)
    b.output[0] = b.receive(a)  # here


def crossed(p, a, b):
    a.output[0] = a.receive(b)  # here
    a.send(a.input[0], b)
    b.output[0] = b.receive(a)
    b.send(b.input[0], a)


def crossed_signals(p, a, b):
    a.wait(b)  # here
    a.signal(b)
    b.wait(a)
    b.signal(a)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (reads_scratch, "chunk 0 of the scratch of rank 0 is read before anything is written there"),
        (reads_output, "chunk 1 of the output of rank 0 is read before"),
        (unused, "the result of this is never used"),
        (unreceived, "the message from rank 0 to rank 1 is never received"),
        (unsent, "the message from rank 1 to rank 0 is never sent"),
        (other_count, r"has 2 chunks at .*:\d+, but is received as 3"),
        (other_codec, r"is sent as window at .*:\d+, but received as raw"),
        (other_group, r"belong to group 0 at .*:\d+ and to group 1 here: use another channel"),
        (other_loop, "but received in another loop"),
        (groups_in_a_loop, "in the same loop: use one group, or a semaphore"),
        (crossed, r"wait for each other: .*:\d+ \(rank \d\), "),
        (crossed_signals, r"wait for each other: .*:\d+ \(rank \d\), "),
    ],
)
def test_what_only_the_whole_program_shows_is_an_error_at_its_line(program, message):
    p = one_step(program)
    with pytest.raises(Error, match=message) as raised:
        p.json()
    if program not in (crossed, crossed_signals):
        assert raised.value.site.line == line_of(program, "# here")
    assert raised.value.site.file == __file__


@pytest.mark.parametrize(
    ("program", "message"), [(nested_loops, "a loop cannot be in another one"), (barrier_in_loop, "barrier cannot be")]
)
def test_loops_contain_steps_only(program, message):
    with pytest.raises(Error, match=message):
        one_step(program)


def test_a_program_that_must_work_in_place_and_cannot_is_an_error():
    p = Program("all_reduce", 1, chunks=2, in_place="either")
    r = p.ranks[0]
    r.output[0] = r.input[1]
    r.output[1] = r.input[0]
    with pytest.raises(Error, match=r"in place, the input would be overwritten before it is read: .*in_place='no'"):
        p.json()


def test_a_buffer_that_a_rank_does_not_have_is_named():
    p = Program("broadcast", 2, root=1)
    with pytest.raises(Error, match="rank 0 has no input in this operation"):
        p.ranks[0].output[:] = p.ranks[0].input
    with pytest.raises(Error, match="the input of rank 0, of 0 chunks, has no chunk 0"):
        p.ranks[0].input[0]


def test_settings_end_with_their_block():
    p = Program("all_reduce", 2, chunks=2)
    a, b = p.ranks
    with pytest.raises(Error), codec("window"), group("x"), channel("y"):
        a.input[2]
    b.output[0] = a.input[0]
    (operand,) = p.model.ranks[0].groups[0].steps[0].destinations
    assert operand.codec == "raw"


def test_a_helper_is_named_by_its_own_line():
    def helper(r):
        return r.input[9]  # in the helper

    p = Program("all_reduce", 1)
    with pytest.raises(Error) as raised:
        helper(p.ranks[0])
    assert raised.value.site.line == line_of(helper, "# in the helper")
