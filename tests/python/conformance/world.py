"""What the cases of a section work with, on one rank."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import narrowcast
import numpy as np

CODECS = ("raw", "window", "auto")


@dataclass
class World:
    """One rank, its communicators and its memory. All but rank, place and comms is the same on every rank."""

    place: Any
    rank: int
    ranks: int
    comms: list[narrowcast.Communicator]
    streams: list[Any]  # two; all calls of a section use them
    amount: str  # "all", or "some" or "few" where that would take too long
    seed: int
    default_stream: bool = True  # calls may go without a stream, too

    @property
    def comm(self) -> narrowcast.Communicator:
        return self.comms[0]

    @property
    def thorough(self) -> bool:
        return self.amount == "all"

    def random(self, *names: object, own: bool = False) -> random.Random:
        """The same numbers on every rank, or with `own` this rank's own."""
        return random.Random(repr((self.seed, *names, self.rank if own else "all")))


@dataclass
class Outcome:
    """What a case came to on one rank."""

    wrong: list[str] = field(default_factory=list)
    # NaNs whose payload or sign depends on the codec.
    nans: list[str] = field(default_factory=list)
    # Of a result that all ranks have alike, to the bit.
    digest: int | None = None

    def note(self, where: str, sentence: str | None) -> None:
        if sentence:
            self.wrong.append(f"{where}: {sentence}" if where else sentence)

    def same_everywhere(self, result: np.ndarray) -> None:
        self.digest = zlib.crc32(np.ascontiguousarray(result).view(np.uint8), self.digest or 0)


# A case is its name and what runs it.
Case = tuple[str, Callable[[], Outcome]]
Cases = Iterator[Case]
