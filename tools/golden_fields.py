"""Decodes payloads of the codecs `abs` and `rate` by docs/format/absolute.md and rate.md alone, for make_golden.py."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass


def rounded(value: float, value_bytes: int) -> float:
    """The nearest float32 or float64, which may be infinite."""
    if value_bytes == 8:
        return value
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", value))
        return float(nearest)
    except OverflowError:
        return math.copysign(math.inf, value)


def bits_of(payload: bytes, first: int, count: int) -> int:
    """A number of `count` bits, from bit `first` on."""
    return int.from_bytes(payload, "little") >> first & ((1 << count) - 1)


@dataclass(frozen=True)
class Absolute:
    """The codec `abs`."""

    bound: float
    id: int = 14

    @property
    def parameters(self) -> int:
        """Those of a frame's header."""
        return int.from_bytes(struct.pack("<f", self.bound), "little")

    @property
    def number(self) -> int:
        """The ncast_codec."""
        return self.id | self.parameters << 16

    def decode(self, payload: bytes, value_bytes: int) -> bytes:
        """The values of a block."""
        if len(payload) == 1024 * value_bytes:
            return payload
        (error,) = struct.unpack("<f", struct.pack("<I", self.parameters & 0xFFFF0000))
        modes = bytes(32) if len(payload) == 16 else payload[4:36]
        (integer,) = struct.unpack_from("<i", payload)
        at, values = 36, b""
        for mode in modes:
            if mode == 64:
                values += 32 * payload[at : at + value_bytes]
                at += value_bytes
            elif mode == 65:
                values += payload[at : at + 32 * value_bytes]
                at += 32 * value_bytes
            else:
                for i in range(32):
                    code = bits_of(payload[at : at + 4 * mode], mode * i, mode)
                    integer += -(code + 1) // 2 if code % 2 else code // 2
                    integer = (integer + 2**31) % 2**32 - 2**31
                    value = rounded(rounded(integer, value_bytes) * 2 * error, value_bytes)
                    values += struct.pack("<f" if value_bytes == 4 else "<d", value)
                at += 4 * mode
        if len(payload) != 16 and len(payload) != (at + 15) // 16 * 16:
            raise ValueError(f"{at} bytes in a payload of {len(payload)}")
        return values


@dataclass(frozen=True)
class Rate:
    """The codec `rate`."""

    bits: int
    id: int = 15

    @property
    def parameters(self) -> int:
        """Those of a frame's header."""
        return self.bits

    @property
    def number(self) -> int:
        """The ncast_codec."""
        return self.id | self.parameters << 16

    def payload_bytes(self, value_bytes: int) -> int:
        return 4096 // value_bytes * self.bits // 8

    def decode(self, payload: bytes, value_bytes: int) -> bytes:
        """The values of a block."""
        quads = 1024 // value_bytes
        sections = [32] * (self.bits // 8) + [piece for piece in (16, 8, 4) if self.bits * 4 & piece]
        values = b""
        for quad in range(quads):
            string, place, first = 0, 0, 0
            for piece in sections:
                string |= bits_of(payload, 8 * first + piece * quad, piece) << place
                place += piece
                first += piece * quads // 8
            digits = [string >> i & 1 for i in range(4 * self.bits)]
            values += b"".join(value.to_bytes(value_bytes, "little") for value in quad_values(digits, value_bytes))
        return values


def quad_values(digits: list[int], value_bytes: int) -> list[int]:
    """The bits of the four values that a string stands for."""
    width, exponent_bits, mantissa_bits = (32, 8, 23) if value_bytes == 4 else (64, 11, 52)

    def number(count: int) -> int:
        return sum(digits.pop(0) << i for i in range(count))

    each = (len(digits) - 2 * exponent_bits) // 4
    nan, infinity, sign = 2 ** (width - 1) - 1, (2**exponent_bits - 1) << mantissa_bits, 2 ** (width - 1)
    exponent = number(exponent_bits)
    if exponent == 0:
        return [0] * 4
    if exponent == 2**exponent_bits - 1:
        if each < 3:
            return [nan] * 4
        exponent = min(max(number(exponent_bits), 1), 2**exponent_bits - 2)
        top = 2 ** (each - 1)
        special = {top: nan, top - 1: infinity, top + 1: infinity | sign}
        codes = [number(each) for _ in range(4)]
        return [
            special.get(code, bits_of_value(signed(code, each) << (width - each), exponent, value_bytes))
            for code in codes
        ]
    y = transformed(planes(digits, width), width)
    return [bits_of_value(signed(value, width), exponent, value_bytes) for value in y]


def bits_of_value(integer: int, exponent: int, value_bytes: int) -> int:
    width, bias, of_float, of_bits = (32, 127, "<f", "<I") if value_bytes == 4 else (64, 1023, "<d", "<Q")
    largest = math.ldexp(2 - 2.0 ** (-23 if width == 32 else -52), bias)
    scaled = rounded(math.ldexp(rounded(integer, value_bytes), 3 - width), value_bytes)
    try:
        scaled = rounded(math.ldexp(scaled, exponent - bias), value_bytes)
    except OverflowError:
        scaled = math.copysign(math.inf, scaled)
    (bits,) = struct.unpack(of_bits, struct.pack(of_float, min(max(scaled, -largest), largest)))
    return int(bits)


def planes(digits: list[int], width: int) -> list[int]:
    """Four integers from their digits in base -2."""
    found, active = [0] * 4, 0
    for plane in range(width - 1, -1, -1):
        for i in range(active):
            found[i] += (digits.pop(0) if digits else 0) * (-2) ** plane
        while active < 4 and digits and digits.pop(0):
            is_known = True
            while active < 3 and is_known:
                if not digits:
                    is_known = False
                elif digits.pop(0):
                    break
                else:
                    active += 1
            if not is_known:
                break
            found[active] += (-2) ** plane
            active += 1
    return found


def signed(value: int, width: int) -> int:
    return (value + (1 << width - 1)) % (1 << width) - (1 << width - 1)


def transformed(integers: list[int], width: int) -> list[int]:
    y0, y1, y2, y3 = (signed(value, width) for value in integers)
    y1 = signed(y1 + (y3 >> 1), width)
    y3 = signed(y3 - (y1 >> 1), width)
    y1 += y3
    y3 = 2 * y3 - y1
    y2 += y0
    y0 = 2 * y0 - y2
    y1 += y2
    y2 = 2 * y2 - y1
    y3 += y0
    y0 = 2 * y0 - y3
    return [y0, y1, y2, y3]
