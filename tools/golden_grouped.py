"""Decodes payloads of the codecs 3 to 13 by docs/format/grouped.md alone, for make_golden.py."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

# Codec: id, bits of an element, kind of scale, values of a group.
CODECS = {
    "int8": (3, 8, "bfloat16", 32),
    "int8a": (4, 8, "least", 128),
    "int6": (5, 6, "bfloat16", 32),
    "int4": (6, 4, "bfloat16", 32),
    "int2": (7, 2, "bfloat16", 32),
    "e4m3": (8, 8, "float32", 128),
    "e5m2": (9, 8, "float32", 128),
    "mxfp8": (10, 8, "e8m0", 32),
    "mxfp6": (11, 6, "e8m0", 32),
    "mxfp4": (12, 4, "e8m0", 32),
    "nvfp4": (13, 4, "e4m3", 16),
}
# Mantissa bits, bias and largest code of an element.
FLOATS = {"e4m3": (3, 7, 0x7E), "e5m2": (2, 15, 0x7B), "e2m3": (3, 1, 0x1F), "e3m2": (2, 3, 0x1F), "e2m1": (1, 1, 7)}


def float32(value: float) -> float:
    """The nearest float32."""
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", value))
        return float(nearest)
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True)
class Grouped:
    """A codec of the family with its parameters."""

    name: str
    group: int
    rotate: int = 1
    element: str = ""  # of floats
    rounding: int = 1
    seed: int = 1

    @property
    def bits(self) -> int:
        return CODECS[self.name][1]

    @property
    def scale(self) -> str:
        return CODECS[self.name][2]

    @property
    def parameters(self) -> int:
        """Those of a frame's header."""
        fields = []
        if self.scale in ("bfloat16", "least", "float32"):
            fields.append(self.group.bit_length())
        if self.scale == "bfloat16":
            fields.append(self.rotate.bit_length())
        if self.name in ("mxfp8", "mxfp6"):
            fields.append(1 if self.element in ("e4m3", "e2m3") else 2)
        fields.append(self.rounding)
        return sum(value << 8 * i for i, value in enumerate(fields)) | self.seed << 8 * len(fields)

    @property
    def number(self) -> int:
        """The ncast_codec."""
        return CODECS[self.name][0] | self.parameters << 16

    def payload_bytes(self, elems: int, value_bytes: int) -> int:
        groups = elems // self.group
        scale = {"bfloat16": 2, "least": 2 + value_bytes, "float32": 4, "e8m0": 1, "e4m3": 1}[self.scale]
        return elems * self.bits // 8 + groups * scale + (16 if self.scale == "e4m3" else 0)


def variants() -> list[Grouped]:
    found = []
    for name, (_, _, scale, group) in CODECS.items():
        element = {"mxfp8": "e4m3", "mxfp6": "e2m3", "mxfp4": "e2m1", "nvfp4": "e2m1"}.get(name, name)
        found.append(Grouped(name, group, element=element))
        if scale == "bfloat16":
            found.append(Grouped(name, 64, 16, rounding=2, seed=515))
        elif name in ("mxfp8", "mxfp6"):
            found.append(Grouped(name, 32, element={"mxfp8": "e5m2", "mxfp6": "e3m2"}[name], rounding=2, seed=9))
    return found


def small_float(element: str, code: int, bits: int) -> float:
    mantissa_bits, bias, largest = FLOATS[element]
    magnitude = code % (1 << (bits - 1))
    exponent, mantissa = magnitude >> mantissa_bits, magnitude % (1 << mantissa_bits)
    if magnitude > largest:
        value = math.inf if element == "e5m2" and magnitude == 0x7C else math.nan
    elif exponent == 0:
        value = math.ldexp(mantissa, 1 - bias - mantissa_bits)
    else:
        value = math.ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)
    return -value if code >> (bits - 1) else value


def codes_of(codec: Grouped, payload: bytes, elems: int) -> list[int]:
    def plane(first: int, bits: int) -> list[int]:
        number = int.from_bytes(payload[first : first + elems * bits // 8], "little")
        return [number >> (bits * i) & ((1 << bits) - 1) for i in range(elems)]

    if codec.name != "int6":
        return plane(0, codec.bits)
    return [low | high << 4 for low, high in zip(plane(0, 4), plane(elems // 2, 2), strict=True)]


def rotated(values: Sequence[float], count: int) -> list[float]:
    result = list(values)
    step = 1
    while step < count:
        for i in range(len(result)):
            if not i & step:
                a, b = result[i], result[i + step]
                result[i], result[i + step] = float32(a + b), float32(a - b)
        step *= 2
    return [float32(value * float32(1 / math.sqrt(count))) for value in result]


def bfloat16(value: float) -> bytes:
    """The nearest bfloat16, ties to even."""
    if math.isnan(value):
        return b"\xff\x7f"
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def decode(codec: Grouped, payload: bytes) -> bytes:
    """The values of a block of bfloat16."""
    return b"".join(bfloat16(value) for value in decoded(codec, payload, 2048))


def decoded(codec: Grouped, payload: bytes, elems: int) -> list[float]:
    largest = math.ldexp(255, 120)

    def limited(value: float) -> float:
        return math.copysign(largest, value) if abs(value) > largest else value

    codes, scales = codes_of(codec, payload, elems), elems * codec.bits // 8
    values: list[float] = []
    if codec.scale in ("bfloat16", "least"):
        top = 1 << codec.bits
        for i, code in enumerate(codes):
            (bits,) = struct.unpack_from("<H", payload, scales + i // codec.group * 2)
            special = bits >> 15
            scale = struct.unpack("<f", struct.pack("<I", (bits & 0x7FFC if special else bits) << 16))[0]
            if codec.scale == "least":
                number, special_code = code, 255
                least = struct.unpack_from("<H", payload, scales + elems // codec.group * 2 + i // codec.group * 2)[0]
                zero = struct.unpack("<f", struct.pack("<I", least << 16))[0]  # of bfloat16 values
            else:
                number, special_code, zero = code - (top if code >= top // 2 else 0), top // 2, 0.0
            if special and code == special_code and bits % 4 != 3:
                values.append((math.nan, math.inf, -math.inf)[bits % 4])
            else:
                values.append(limited(float32(number * scale + zero)))
        if codec.rotate > 1:
            whole: list[float] = []
            for first in range(0, elems, codec.rotate):
                run = values[first : first + codec.rotate]
                (bits,) = struct.unpack_from("<H", payload, scales + first // codec.group * 2)
                whole += run if bits >> 15 else [limited(value) for value in rotated(run, codec.rotate)]
            values = whole
        return values
    if codec.scale == "e4m3":
        (block_scale,) = struct.unpack_from("<f", payload, scales + elems // codec.group)
    for i, code in enumerate(codes):
        group, flag = i // codec.group, 0
        if codec.scale == "float32":
            (bits,) = struct.unpack_from("<I", payload, scales + 4 * group)
            flag, scale = bits >> 31, struct.unpack("<f", struct.pack("<I", bits & 0x7FFFFFFF))[0]
        elif codec.scale == "e8m0":
            byte = payload[scales + group]
            scale = math.nan if byte == 255 else math.ldexp(1, byte - 127)
        else:
            scale = float32(small_float("e4m3", payload[scales + group], 8) * block_scale)
        element = small_float(codec.element, code, codec.bits)
        if flag and math.isnan(element):
            element = -math.inf if code >> 7 else math.inf
        values.append(limited(float32(element * scale)) if math.isfinite(element) else element * scale)
    return values


def make_valid(codec: Grouped, payload: bytearray) -> None:
    """Changes scales of a payload of bfloat16 values that are not valid, and those that would mix rotated values with
    others."""
    elems = 2048
    first, groups = elems * codec.bits // 8, elems // codec.group
    for group in range(groups):
        if codec.scale in ("bfloat16", "least"):
            at = first + 2 * group
            payload[at + 1] = payload[at + 1] & 0x80 | 0x20 + payload[at + 1] % 0x40
        if codec.scale == "least":
            payload[first + 2 * groups + 2 * group + 1] &= 0xBF
        if codec.scale == "float32":
            payload[first + 4 * group + 3] = payload[first + 4 * group + 3] % 0x40 + 0x20
            if codec.name == "e4m3" and group % 2:
                payload[first + 4 * group + 3] |= 0x80
        if codec.scale == "e4m3":
            payload[first + group] &= 0x7F
    if codec.scale == "e4m3":
        payload[first + groups : first + groups + 4] = struct.pack("<f", 1.5)
