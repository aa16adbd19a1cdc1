"""Runs the body of a test on ranks that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import narrowcast


def on_ranks(ranks: int, body: Callable[[Any], Any], **options: Any) -> list[Any]:
    """Runs the body with a communicator on every rank, each in a thread. Returns results or exceptions.

    options: of all ranks, or a list with one dictionary for each.
    """
    results: list[Any] = [None] * ranks
    unique_id = narrowcast.unique_id()

    def work(rank: int) -> None:
        try:
            own = {name: value[rank] if isinstance(value, list) else value for name, value in options.items()}
            with narrowcast.Communicator(unique_id, rank, ranks, **{"timeout_seconds": 20, **own}) as comm:
                results[rank] = body(comm)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def succeed(results: list[Any]) -> list[Any]:
    """Raises the exception of the first rank that failed by itself, if any failed."""
    failures = [one for one in results if isinstance(one, BaseException)]
    for failure in sorted(failures, key=lambda one: isinstance(one, (narrowcast.AbortedError, narrowcast.RemoteError))):
        raise failure
    return results
