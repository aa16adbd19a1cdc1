"""Ctrl-C and other signals while ranks wait."""

from __future__ import annotations

import narrowcast
import pytest
from narrowcast._bench.launch import run_ranks

SECONDS = 60
SOON = 20  # the waits have no time limit


@pytest.fixture
def run(rank_jobs):
    def run(job: str, ranks: int, **options):
        identity = narrowcast.unique_id().hex()
        arguments = [{"unique_id": identity, "rank": rank, "ranks": ranks, **options} for rank in range(ranks)]
        results: list[list] = []
        run_ranks(f"interrupt_jobs:{job}", arguments, results.append, timeout_seconds=SECONDS)
        return results[0]

    return run


def test_an_interrupt_ends_the_creation_on_every_rank(run):
    (first, first_seconds), (second, _), _ = run("creating", 3)
    assert [first, second] == ["KeyboardInterrupt", "AbortedError"]
    assert first_seconds < SOON


@pytest.mark.parametrize("how", ["call", "group", "second call", "synchronize", "close", "stream close"])
def test_an_interrupt_ends_a_wait_and_aborts_the_communicator(run, how):
    (first, first_seconds, close_seconds), (second, *_), (last, *_) = run("waiting", 3, how=how)
    assert first == "KeyboardInterrupt"
    assert first_seconds < SOON
    assert close_seconds < SOON
    assert second == ("nothing" if "close" in how else "AbortedError")  # closing does not report the calls' errors
    assert last == "AbortedError"


@pytest.mark.parametrize(
    ("what", "raised", "first", "second"),
    [
        ("returns", "nothing", 4.0, "nothing"),
        ("calls", "nothing", 4.0, "nothing"),
        ("raises", "LookupError", 2.0, "AbortedError"),
        ("aborts", "AbortedError", 2.0, "AbortedError"),
    ],
)
def test_the_handler_of_a_signal_runs_during_a_wait(run, what, raised, first, second):
    (name, value, handled), (other, *_) = run("handled", 2, what=what)
    assert (name, value, handled) == (raised, first, 1)
    assert other == second


def test_an_interrupt_does_not_end_the_waits_of_other_threads(run):
    (main, thread), _ = run("in_a_thread", 2)
    assert (main, thread) == ("KeyboardInterrupt", "AbortedError")
