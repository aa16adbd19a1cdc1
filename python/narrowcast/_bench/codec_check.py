"""Conformance of a registered codec: what every codec must guarantee, one property after another, in this process.

A codec that is wrong may crash it, so `narrowcast codec check` runs it in a child.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native.codecs import Codec, CodecType, comm_codec_number
from .._native.library import library
from ..codec import bound, decode, encode, error_bound
from ..errors import CorruptError, Status
from ..types import ValueType, value_type
from . import oracle
from .tolerance import absmax, count_far

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

_HEADER_BYTES, _ALIGN = 64, 16
_GUARD_BYTES = 64
_DAMAGED = 80  # payloads of each type and choice of parameters
_MOST_SPECS = 12
_ARCHITECTURE = 90
_THREADS, _REPEATS = 4, 16


class Failed(Exception):
    """A property does not hold: for which values, and why."""


@dataclass(frozen=True)
class Case:
    """A codec with parameters, and a value type that it encodes."""

    codec: str
    kind: ValueType
    block_elems: int
    exact: bool
    fixed: bool

    def __str__(self) -> str:
        return f"{self.codec}, {self.kind.name}"


def specs_of(codec: Codec) -> list[str]:
    """The codec with its default parameters, with the limits of each, and with each choice."""
    found = [codec.name]
    for one in codec.parameters:
        values = range(1, len(one.choices) + 1) if one.choices else (one.least, one.most)
        found += [f"{codec.name}:{one.name}={one.text(value)}" for value in values if value != one.default]
    return found[:_MOST_SPECS]


def cases_of(codec: Codec) -> list[Case]:
    """Every choice of parameters with every type."""

    def case(spec: str, own: CodecType) -> Case:
        kind = value_type(own.dtype)
        return Case(spec, kind, own.block_bytes // kind.bytes, codec.exact, codec.fixed_payload)

    return [case(spec, own) for spec, own in itertools.product(specs_of(codec), codec.types)]


def patterns(case: Case, elems: int) -> Iterator[tuple[str, Array]]:
    """Named values, as bits."""
    kind, random = case.kind, np.random.default_rng(elems)
    yield "random bits", random.integers(0, 256, elems * kind.bytes, np.uint8).view(kind.numpy)
    if not kind.is_float:
        yield "small integers", random.integers(0, 4, elems).astype(kind.numpy)
        yield "zeros", np.zeros(elems, kind.numpy)
        return
    wide = np.float64 if kind.name == "float64" else np.float32

    def bits(values: Array) -> Array:
        return oracle.narrow(values.astype(wide), kind)

    normal = random.standard_normal(elems)
    yield "normally distributed values", bits(normal)
    yield "zeros", bits(np.zeros(elems))
    yield "negative zeros", bits(-np.zeros(elems))
    yield "a constant", bits(np.full(elems, 1.5))
    yield "one outlier", bits(np.where(np.arange(elems) == elems // 2, 100.0, 0.01 * normal))
    yield "powers of two", bits(2.0 ** random.integers(-6, 6, elems))
    # The smallest numbers above 0, and the largest finite ones.
    yield "subnormal values", random.integers(1, 4, elems).astype(kind.numpy)
    largest = bits(np.array([np.inf]))[0]
    if np.isinf(oracle.widen(np.array([largest]), kind)[0]):
        yield "the largest values", np.full(elems, largest - 1, kind.numpy)
    for name, special in (("NaN", np.nan), ("infinity", np.inf), ("negative infinity", -np.inf)):
        yield f"values with {name}", bits(np.where(np.arange(elems) % 97 == 5, special, normal))


def counts(case: Case) -> list[int]:
    """Numbers of values: none, one, odd ones, and those around whole blocks."""
    block = case.block_elems
    return sorted({0, 1, 7, block - 1, block, block + 1, 2 * block, 3 * block + 5})


def _encoded(case: Case, values: Array) -> Bytes:
    return np.asarray(encode(values, codec=case.codec, dtype=case.kind.name, checksum=False))


def _decoded(case: Case, frame: Bytes) -> Array:
    return np.asarray(decode(frame)).view(case.kind.numpy)


def _of_blocks(case: Case, elems: int, limit: int = 3) -> Iterator[tuple[str, Array]]:
    return itertools.islice(patterns(case, elems), limit)


def restores(case: Case) -> None:
    """Decoded values have the bits that were encoded or, if the codec is lossy, are within its error bound."""
    for elems in counts(case):
        for name, values in patterns(case, elems):
            found = _decoded(case, _encoded(case, values))
            where = f"{elems} values, {name}"
            if case.exact and not np.array_equal(found, values):
                raise Failed(f"{where}: other bits")
            if case.exact or not elems:
                continue
            for at in range(0, elems, case.block_elems):
                part = slice(at, at + case.block_elems)
                limit = error_bound(case.codec, case.kind.name, absmax(values[part], case.kind))
                if far := count_far(found[part], values[part], case.kind, limit):
                    raise Failed(f"{where}: {far} values of block {at // case.block_elems} exceed {limit:g}")


def keeps_nonfinite(case: Case) -> None:
    """NaN stays NaN, and infinity stays or becomes NaN."""
    if not case.kind.is_float:
        return
    for name, values in patterns(case, 2 * case.block_elems):
        found = _decoded(case, _encoded(case, values))
        before, after = (oracle.widen(bits, case.kind) for bits in (values, found))
        lost = ~np.isfinite(before) & ~(np.isnan(after) | (np.isinf(before) & (after == before)))
        if lost.any():
            raise Failed(f"{name}: {int(lost.sum())} values that are not finite became others")


def bounds_grow(case: Case) -> None:
    """The error bound is 0 or more, finite, and does not shrink when the values grow."""
    if case.exact:
        return
    found = [error_bound(case.codec, case.kind.name, largest) for largest in (0.0, 1e-6, 1e-3, 1.0, 64.0)]
    if not all(0 <= one < np.inf for one in found) or found != sorted(found):
        raise Failed(f"error_bound of 0, 1e-6, 1e-3, 1 and 64 is {', '.join(f'{one:g}' for one in found)}")


def has_sizes(case: Case) -> None:
    """Payloads are multiples of 16 bytes and no longer than the values; fixed ones are equally long."""
    block, one_block = case.block_elems, set()
    for elems in counts(case):
        limit = bound(case.kind.name, elems, codec=case.codec)
        for name, values in patterns(case, elems):
            size = _encoded(case, values).size
            if size % _ALIGN:
                raise Failed(f"{elems} values, {name}: {size} bytes are not a multiple of {_ALIGN}")
            if size > limit:
                raise Failed(f"{elems} values, {name}: {size} bytes exceed the bound of {limit}")
            if elems == block:
                one_block.add(size)
    if case.fixed and len(one_block) != 1:
        raise Failed(f"frames of one block have {', '.join(map(str, sorted(one_block)))} bytes")


def is_deterministic(case: Case) -> None:
    """The same values have the same payload, each time, and in several threads at once."""
    for name, values in _of_blocks(case, 2 * case.block_elems + 3, 4):
        first = _encoded(case, values)
        with ThreadPoolExecutor(_THREADS) as pool:
            frames = list(pool.map(_encoded, [case] * _REPEATS, [values] * _REPEATS))
        if any(not np.array_equal(frame, first) for frame in frames):
            raise Failed(f"{name}: other bytes the second time")


def needs_no_alignment(case: Case) -> None:
    """Values and payloads may be at any address."""
    elems, size = 2 * case.block_elems, case.kind.bytes
    for name, values in _of_blocks(case, elems, 4):
        frame = _encoded(case, values)
        for shift in (1, 3, 9):
            moved = np.zeros(elems * size + shift, np.uint8)[shift:]
            moved[:] = values.view(np.uint8)
            unaligned = np.frombuffer(moved, np.dtype(case.kind.numpy), count=elems)
            out = np.zeros(bound(case.kind.name, elems, codec=case.codec) + shift, np.uint8)[shift:]
            found = encode(unaligned, codec=case.codec, dtype=case.kind.name, checksum=False, out=out)
            if not np.array_equal(np.asarray(found), frame):
                raise Failed(f"{name}: {shift} bytes further the payload has other bytes")
            target = np.zeros(elems * size + shift, np.uint8)[shift:]
            decode(found, out=target)
            if not np.array_equal(target, np.asarray(decode(frame)).view(np.uint8).ravel()):
                raise Failed(f"{name}: {shift} bytes further other values are decoded")


def writes_all_and_no_more(case: Case) -> None:
    """What is written does not depend on what was there before, and nothing beyond it is written."""
    elems, raw_bytes = case.block_elems, case.block_elems * case.kind.bytes
    for name, values in _of_blocks(case, elems, 4):
        results = []
        for poison in (0x00, 0xA5, 0xFF):
            # Frames have room for whole blocks, so that payloads are not copied to their place.
            capacity = bound(case.kind.name, elems, codec=case.codec) + raw_bytes
            memory = np.full(capacity + _GUARD_BYTES, poison, np.uint8)
            frame = np.asarray(
                encode(values, codec=case.codec, dtype=case.kind.name, checksum=False, out=memory[:capacity])
            ).copy()
            target = np.full(raw_bytes + _GUARD_BYTES, poison, np.uint8)
            decode(frame, out=target[:raw_bytes])
            if (memory[capacity:] != poison).any() or (target[raw_bytes:] != poison).any():
                raise Failed(f"{name}: bytes after the end were written")
            results.append((frame.tobytes(), target[:raw_bytes].tobytes()))
        if len({payload for payload, _ in results}) != 1:
            raise Failed(f"{name}: bytes of the payload are not written")
        if len({decoded for _, decoded in results}) != 1:
            raise Failed(f"{name}: bytes of the values are not written")


def survives_damage(case: Case) -> None:
    """Payloads with changed, random or missing bytes are refused or decoded, without a crash or a write too far."""
    elems, random = case.block_elems, np.random.default_rng(3)
    raw_bytes = elems * case.kind.bytes
    for _, values in _of_blocks(case, elems):
        frame = _encoded(case, values)
        for number in range(_DAMAGED):
            damaged = frame.copy()
            payload = damaged[_HEADER_BYTES:]
            if number % 4 == 0:
                payload[:] = random.integers(0, 256, payload.size, np.uint8)
            elif number % 4 == 1:
                damaged = damaged[: random.integers(_HEADER_BYTES, damaged.size)]
            else:
                places = random.integers(0, payload.size, 1 + number % 8)
                payload[places] = random.integers(0, 256, places.size, np.uint8)
            target = np.full(raw_bytes + _GUARD_BYTES, 0x5A, np.uint8)
            try:
                decode(damaged, out=target[:raw_bytes])
            except CorruptError:
                pass
            except ValueError as error:
                raise Failed(f"an error that is not CorruptError: {error}") from None
            if (target[raw_bytes:] != 0x5A).any():
                raise Failed("bytes after the end of the values were written")


def compiles(case: Case) -> None:
    """Its CUDA header, if there is one and NVRTC is installed. The code does not depend on the parameters."""
    if ":" in case.codec:
        return
    number = comm_codec_number(case.codec)
    status = library().ncast_codec_compile(number, case.kind.number, _ARCHITECTURE, None)
    if status not in (Status.OK, Status.UNSUPPORTED):
        raise Failed(library().ncast_last_error().decode(errors="replace").partition(": ")[2])


#: Name -> what is checked of every case. The name is a sentence about the codec.
PROPERTIES: dict[str, Callable[[Case], None]] = {
    "restores values, or is within its bound": restores,
    "keeps what is not finite": keeps_nonfinite,
    "has an error bound that grows with the values": bounds_grow,
    "has payloads of the stated sizes": has_sizes,
    "encodes the same values to the same bytes": is_deterministic,
    "needs no alignment": needs_no_alignment,
    "writes all bytes, and none beyond": writes_all_and_no_more,
    "survives damaged payloads": survives_damage,
    "compiles for GPUs, if it has a CUDA header": compiles,
}


def check(path: str, skipped: list[str], emit: Callable[[Any], None]) -> None:
    """The main function of the child: registers a library and emits each property, before and after it was checked."""
    from .._native.codecs import register_codec

    codec = register_codec(path)
    emit({"codec": codec.name, "cases": [str(case) for case in cases_of(codec)]})
    for name, holds in PROPERTIES.items():
        if name in skipped:
            continue
        emit({"property": name, "begins": True})
        fault = None
        for case in cases_of(codec):
            try:
                with np.errstate(all="ignore"):  # random bits contain signalling NaN
                    holds(case)
            except Failed as failed:
                fault = f"{case}: {failed}"
            except Exception as error:
                fault = f"{case}: {type(error).__name__}: {error}"
            if fault is not None:
                break
        emit({"property": name, "fault": fault})
