"""The environment of test cases on one rank."""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import narrowcast
import numpy as np
from narrowcast.types import ValueType


@functools.cache
def codecs() -> tuple[str, ...]:
    """Every codec of the library with its default, its smallest and its largest parameters, and "auto"."""
    found = []
    for codec in narrowcast.codecs():
        found.append(codec.name)
        for end in ("least", "most"):
            values = [(one, getattr(one, end)) for one in codec.parameters]
            if any(value != one.default for one, value in values):
                found.append(f"{codec.name}:{','.join(f'{one.name}={one.text(value)}' for one, value in values)}")
    return (*found, "auto")


# Of a case, in which the results of bounded codecs are compared with their bounds, which takes long.
_BOUNDED_CODECS = 3


def codecs_of_case(rng: random.Random) -> list[str]:
    """All exact codecs, "auto", and some of the others."""
    bounded = [codec for codec in codecs() if codec not in exact()]
    return [*exact(), *rng.sample(bounded, min(_BOUNDED_CODECS, len(bounded)))]


def suited(codec: str, kind: ValueType, op: str = "sum") -> str:
    """The codec, or "auto" if it is lossy and the library refuses it for this type or reduction."""
    return codec if codec in exact() or (kind.is_float and op in ("sum", "avg")) else "auto"


def coding() -> tuple[str, ...]:
    """The codecs that change the bytes of values."""
    return tuple(codec for codec in codecs() if codec not in ("raw", "auto"))


def exact() -> tuple[str, ...]:
    """The codecs that restore every bit."""
    inexact = {codec.name for codec in narrowcast.codecs() if not codec.exact}
    return tuple(codec for codec in codecs() if codec.partition(":")[0] not in inexact)


@dataclass
class World:
    """A rank with its communicators and memory. Everything except rank, place and comms is the same on all ranks."""

    place: Any
    rank: int
    ranks: int
    comms: list[narrowcast.Communicator]
    streams: list[Any]  # two; all calls of a section use them
    amount: str  # how many cases to run: "all", "some" or "few"
    seed: int
    default_stream: bool = True  # calls may also use no stream
    hosts: tuple[int, ...] = ()  # of each rank, if there are several
    two_levels: bool = False  # the communicators have two levels

    @property
    def comm(self) -> narrowcast.Communicator:
        return self.comms[0]

    @property
    def thorough(self) -> bool:
        return self.amount == "all"

    def random(self, *names: object, own: bool = False) -> random.Random:
        """A random number generator: the same on every rank, or with `own` a different one on each."""
        return random.Random(repr((self.seed, *names, self.rank if own else "all")))


@dataclass
class Outcome:
    """The result of a case on one rank."""

    wrong: list[str] = field(default_factory=list)
    # NaNs whose payload or sign depends on the codec.
    nans: list[str] = field(default_factory=list)
    # A digest of a result that has the same bits on all ranks.
    digest: int | None = None

    def note(self, where: str, message: str | None) -> None:
        if message:
            self.wrong.append(f"{where}: {message}" if where else message)

    def same_everywhere(self, result: np.ndarray) -> None:
        self.digest = zlib.crc32(np.ascontiguousarray(result).view(np.uint8), self.digest or 0)


# A case: its name, and the function that runs it.
Case = tuple[str, Callable[[], Outcome]]
Cases = Iterator[Case]
