"""What the generators of golden vectors share: values of every type, and the layout of the codec `window`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class ValueType:
    dtype: int
    value_bytes: int
    exponent_bits: int
    tail_bytes: int
    rest_bytes: int
    rest_bits: int

    @property
    def mantissa_bits(self) -> int:
        return 8 * self.value_bytes - 1 - self.exponent_bits

    def trimmed(self, kept: int) -> ValueType:
        """The type as it is stored with `kept` bits of sign and mantissa; 0: all."""
        if kept == 0:
            return self
        tail_bytes, rest_bytes, rest_bits = {24: (2, 1, 0), 11: (0, 1, 3), 8: (0, 1, 0)}[kept]
        return replace_fields(self, tail_bytes=tail_bytes, rest_bytes=rest_bytes, rest_bits=rest_bits)

    @property
    def block_elems(self) -> int:
        return {1: 4096, 2: 2048, 4: 1024, 8: 1024}[self.value_bytes]

    @property
    def block_bytes(self) -> int:
        return self.block_elems * self.value_bytes


TYPES = {
    "bfloat16": ValueType(9, 2, 8, 0, 1, 0),
    "float16": ValueType(6, 2, 5, 0, 1, 3),
    "float32": ValueType(7, 4, 8, 2, 1, 0),
    "float64": ValueType(8, 8, 11, 6, 0, 5),
    "float8_e4m3": ValueType(10, 1, 4, 0, 0, 4),
    "float8_e5m2": ValueType(11, 1, 5, 0, 0, 3),
}


class Random:
    """A generator of our own: the vectors do not depend on Python's."""

    def __init__(self, seed: int) -> None:
        self.state = seed * 2 + 1

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def bell(self) -> int:
        """0 with probability 1/2, 1 with 1/4, and so on."""
        return next((i for i in range(20) if self.below(2) == 0), 20)


def value_bits(kind: ValueType, exponent: int, random: Random) -> int:
    sign, mantissa = random.below(2), random.below(2**20) * 2**32 + random.below(2**16) * 2**16 + random.below(2**16)
    field_bits = exponent << kind.mantissa_bits | mantissa % (1 << kind.mantissa_bits)
    return sign << (8 * kind.value_bytes - 1) | field_bits


def values_of(kind: ValueType, exponents: Sequence[int], random: Random) -> bytes:
    bits = (value_bits(kind, exponent, random) for exponent in exponents)
    return b"".join(value.to_bytes(kind.value_bytes, "little") for value in bits)


def without_low_bits(kind: ValueType, values: bytes, kept: int) -> bytes:
    """The values with only the upper `kept` bits of sign and mantissa."""
    low_bits = kind.mantissa_bits + 1 - kept
    bits = (int.from_bytes(values[at:][: kind.value_bytes], "little") for at in range(0, len(values), kind.value_bytes))
    return b"".join((value >> low_bits << low_bits).to_bytes(kind.value_bytes, "little") for value in bits)


def ordinary(kind: ValueType, elems: int, random: Random) -> bytes:
    """Exponents with a geometric distribution and the outliers of real tensors: zeros, and values near and far."""
    top = 1 << (kind.exponent_bits - 1)
    exponents = []
    for _ in range(elems):
        exponent = max(top - random.bell(), 1)
        dice = random.below(200)
        if dice == 0:
            exponent = 0
        elif dice == 1:
            exponent = random.below(1 << kind.exponent_bits)
        elif dice < 6:
            exponent = max(top - 10 - random.below(6), 0)
        elif dice < 9:
            exponent = min(top + 1 + random.below(5), (1 << kind.exponent_bits) - 1)
        exponents.append(exponent)
    return values_of(kind, exponents, random)


# --- the layout of `window`, as docs/format/window.md specifies it


def index_of(run: int, lanes: int, lane: int, byte: int, word: int) -> int:
    """The index of a field in a group of `lanes` lanes, which have `run` adjacent values each."""
    element = 4 * word + byte
    return (lanes * (element // run) + lane) * run + element % run


def packed(run: int, lanes: int, width: int, fields: list[int]) -> bytes:
    """The fields of a group, of `width` bits each, in the byte order of the codec `window`."""
    section = bytearray(4 * lanes * width)
    whole, spare = 8 // width, 8 % width
    for lane in range(lanes):
        for byte in range(4):
            of_word = [fields[index_of(run, lanes, lane, byte, word)] for word in range(8)]
            top = sum(value << i * width for i, value in enumerate(of_word[whole * width :]))
            for row in range(width):
                bits = sum(value << i * width for i, value in enumerate(of_word[row * whole : (row + 1) * whole]))
                bits |= (top >> row * spare & ((1 << spare) - 1)) << whole * width
                section[(row * lanes + lane) * 4 + byte] = bits
    return bytes(section)


Choice = Callable[[int, int], int]


def nearest_token(base: int, escape_code: int) -> Choice:
    def choose(_: int, exponent: int) -> int:
        if exponent == 0:
            return 14
        if base - 10 <= exponent < base:
            return exponent - base + 10
        if 0 <= exponent - base - escape_code < 4:
            return 10 + exponent - base - escape_code
        return 15

    return choose


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files. Others stay: people add inputs to the corpora of fuzzing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def replace(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files, which are then the only ones in the folder."""
    if folder.is_dir():
        for old in folder.iterdir():
            old.unlink()
    write(folder, files)
