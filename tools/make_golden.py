"""Generates the golden vectors in tests/golden/ and the seeds in tests/fuzz/corpus/.

Run it after an intended change of the format or of the encoder's choices, and review the differences:

    python tools/make_golden.py build/libnarrowcast.so

Frames of kind `encoded` and `lossy` come from the library's reference encoder. Frames of kind `decodes` and `invalid`,
and what `lossy` frames decode to, are made here from docs/format/ alone, so they also check the library against the
specification.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import golden_fields
import golden_grouped
from golden_dense import dense_payload
from golden_values import (
    ROOT,
    TYPES,
    Choice,
    Random,
    ValueType,
    index_of,
    nearest_token,
    ordinary,
    packed,
    replace,
    values_of,
    without_low_bits,
    write,
)

VERSION = 1
CHECKSUM, MORE, REFERENCE, NO_CHECKSUM = 1, 2, 4, 8
RAW, WINDOW, DENSE = 0, 1, 2
VARIABLE = (WINDOW, DENSE, golden_fields.Absolute.id)
# Types, and the numbers of bits of sign and mantissa that their trimmed blocks keep.
TRIMMED = (("float16", 8), ("float32", 8), ("float32", 11), ("float64", 8), ("float64", 11), ("float64", 24))


# --- frames and blocks by the specification -------------------------------------------------------------------------


def align(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


@dataclass
class Frame:
    """The parts of a frame. Tests of invalid frames change them before `build`."""

    dtype: int
    codec: int
    elems: int
    payloads: list[bytes]
    flags: int = 0
    block_elems: int = 0
    header: dict[str, int] = field(default_factory=dict)
    ends: list[int] | None = None

    def build(self) -> bytes:
        ends, total = b"", 0
        if self.codec in VARIABLE:
            units: list[int] = []
            for payload in self.payloads:
                total += len(payload) // 16
                units.append(total)
            ends = align(b"".join(struct.pack("<I", end) for end in self.ends or units))
        body = ends + b"".join(self.payloads)
        fields = {
            "magic": 0x5453434E,
            "version": VERSION,
            "codec": self.codec,
            "dtype": self.dtype,
            "flags": self.flags,
            "elems": self.elems,
            "wire_bytes": 64 + len(body),
            "block_elems": self.block_elems,
            "blocks": len(self.payloads) if self.codec in VARIABLE else 0,
            "checksum": 0,
            "reserved": 0,
        } | self.header
        return struct.pack("<IBBBBQQIIQQQQ", *fields.values(), 0, 0) + body


def raw_frame(name: str, values: bytes, value_bytes: int) -> Frame:
    dtype = TYPES[name].dtype if name in TYPES else {"int8": 0, "int32": 2}[name]
    return Frame(dtype, RAW, len(values) // value_bytes, [align(values)])


def window_frame(kind: ValueType, payloads: list[bytes], elems: int) -> Frame:
    return Frame(kind.dtype, WINDOW, elems, payloads, block_elems=kind.block_elems)


def dense_frame(kind: ValueType, payloads: list[bytes], elems: int) -> Frame:
    return Frame(kind.dtype, DENSE, elems, payloads, block_elems=kind.block_elems)


def window_payload(
    kind: ValueType,
    values: bytes,
    width: int,
    base: int,
    *,
    kept: int = 0,
    escaped: Callable[[int], bool] = lambda index: False,
    token_of: Choice | None = None,
    noise: Random | None = None,
) -> bytes:
    """A payload as specified.

    kept: bits of sign and mantissa; 0: all. escaped: selects values to escape although they are inside the window.
    """
    escape_code, run = (1 << width) - 1, 16 // kind.value_bytes
    token_of = token_of or nearest_token(base, escape_code)
    n = kind.block_elems
    bits = [int.from_bytes(values[i * kind.value_bytes :][: kind.value_bytes], "little") for i in range(n)]
    exponents = [value >> kind.mantissa_bits & ((1 << kind.exponent_bits) - 1) for value in bits]
    stored, trim = kind.trimmed(kept), kind.mantissa_bits + 1 - kept if kept else 0
    rests = [
        (value >> (kind.mantissa_bits + kind.exponent_bits) << kind.mantissa_bits | value % 2**kind.mantissa_bits)
        >> trim
        for value in bits
    ]
    codes = [
        exponent - base if 0 <= exponent - base < escape_code and not escaped(i) else escape_code
        for i, exponent in enumerate(exponents)
    ]
    tokens, far = [], []
    for lane in range(32):
        for group in range(n // 1024):
            for byte in range(4):
                for word in range(8):
                    index = 1024 * group + index_of(run, 32, lane, byte, word)
                    if codes[index] == escape_code:
                        tokens.append(token_of(index, exponents[index]))
                        if tokens[-1] == 15:
                            far.append(exponents[index])

    def packed_groups(width: int, fields: list[int]) -> bytes:
        return b"".join(packed(run, 32, width, fields[first : first + 1024]) for first in range(0, n, 1024))

    tail_bits, rest_byte_bits = 8 * stored.tail_bytes, 8 * stored.rest_bytes
    out = b"".join((rest % 2**tail_bits).to_bytes(stored.tail_bytes, "little") for rest in rests)
    out += b"".join((rest >> tail_bits & 255).to_bytes(1, "little") for rest in rests) if stored.rest_bytes else b""
    if stored.rest_bits:
        out += packed_groups(stored.rest_bits, [rest >> (tail_bits + rest_byte_bits) for rest in rests])
    out += packed_groups(width, codes)
    padded = [*tokens, noise.below(16) if noise else 0]
    out += bytes(padded[2 * i] | padded[2 * i + 1] << 4 for i in range((len(tokens) + 1) // 2))
    far_bytes = 2 if kind.exponent_bits > 8 else 1
    end = b"".join(exponent.to_bytes(far_bytes, "little") for exponent in reversed(far))
    end += struct.pack("<I", width | base << 3 | len(tokens) << 14 | kept << 27)
    padding = -(len(out) + len(end)) % 16
    return out + bytes(noise.below(256) if noise else 0 for _ in range(padding)) + end


# --- the vectors ----------------------------------------------------------------------------------------------------


class Encoder:
    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library.resolve()))
        self.library.ncast_bound.restype = ctypes.c_size_t
        self.library.ncast_bound.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
        self.library.ncast_encode.argtypes = [
            *(ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
            *(ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)),
        ]

    def __call__(self, values: bytes, dtype: int, value_bytes: int, codec: int, flags: int) -> bytes:
        elems = len(values) // value_bytes
        frame = ctypes.create_string_buffer(self.library.ncast_bound(dtype, codec, elems))
        wire_bytes = ctypes.c_size_t()
        encoder_flags = flags if flags & CHECKSUM else flags | NO_CHECKSUM
        arguments = (
            values,
            dtype,
            elems,
            codec,
            encoder_flags | REFERENCE,
            frame,
            len(frame),
            ctypes.byref(wire_bytes),
        )
        if status := self.library.ncast_encode(*arguments):
            raise SystemExit(f"ncast_encode: status {status}")
        return frame.raw[: wire_bytes.value]


@dataclass
class Vectors:
    encode: Encoder
    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def encoded(self, name: str, kind: str, values: bytes, codec: int, flags: int = 0) -> None:
        dtype, value_bytes = (TYPES[kind].dtype, TYPES[kind].value_bytes) if kind in TYPES else (2, 4)
        self.lines.append(f"encoded {name} {dtype} {codec} {flags}")
        self.files |= {
            f"{name}.frame": self.encode(values, dtype, value_bytes, codec, flags),
            f"{name}.values": values,
        }

    def lossy(self, name: str, kind: str, values: bytes, codec: int, decode: Callable[[bytes], bytes]) -> None:
        """A frame of one block. decode: decodes its payload."""
        frame = self.encode(values, TYPES[kind].dtype, TYPES[kind].value_bytes, codec, 0)
        self.lines.append(f"lossy {name} {TYPES[kind].dtype} {codec} 0")
        decoded = decode(frame[80 if codec % 256 in VARIABLE else 64 :])
        self.files |= {f"{name}.frame": frame, f"{name}.values": values, f"{name}.decoded": decoded}

    def decodes(self, name: str, frame: Frame, values: bytes) -> None:
        self.lines.append(f"decodes {name}")
        self.files |= {f"{name}.frame": frame.build(), f"{name}.values": values}

    def invalid(self, name: str, frame: bytes) -> None:
        self.lines.append(f"invalid {name}")
        self.files[f"{name}.frame"] = frame


def add_valid(vectors: Vectors) -> None:
    random = Random(1)
    three = bytes.fromhex("803f 00c0 003f")  # 1.0, -2.0, 0.5
    vectors.encoded("raw_empty", "int32", b"", RAW)
    vectors.encoded("raw_bfloat16", "bfloat16", three, RAW)
    vectors.encoded("raw_checksum", "bfloat16", three, RAW, CHECKSUM)
    vectors.encoded("raw_int32_asked_for_window", "int32", struct.pack("<5i", 1, -1, 7, 0, 2**31 - 1), WINDOW)
    vectors.encoded("window_empty", "bfloat16", b"", WINDOW)
    vectors.encoded("window_short_block", "bfloat16", three * 3, WINDOW, CHECKSUM | MORE)
    for name, kind in TYPES.items():
        extra = 3 if name in ("bfloat16", "float8_e4m3") else 0
        vectors.encoded(f"window_{name}", name, ordinary(kind, kind.block_elems + extra, random), WINDOW)
    kind = TYPES["bfloat16"]
    widths = [100 + random.below(spread) for spread in (1, 3, 14, 27) for _ in range(kind.block_elems)]
    vectors.encoded("window_widths", "bfloat16", values_of(kind, widths, random), WINDOW)

    # Valid, but not written by our encoder: only far tokens, a base at the edge, tokens that wrap, noise in padding.
    edge = values_of(kind, [(254 + random.below(12)) % 256 for _ in range(kind.block_elems)], random)
    wrapped = window_payload(
        *(kind, edge, 2, 0),
        token_of=lambda _, exponent: exponent - 246 if exponent >= 246 else nearest_token(0, 3)(0, exponent),
        noise=random,
    )
    vectors.decodes("foreign_wrapping_tokens", window_frame(kind, [wrapped], kind.block_elems), edge)
    kind = TYPES["float8_e5m2"]
    values = ordinary(kind, kind.block_elems, random)
    far = window_payload(
        *(kind, values, 3, 10), escaped=lambda index: index % 9 == 0, token_of=lambda *_: 15, noise=random
    )
    vectors.decodes("foreign_all_far", window_frame(kind, [far], kind.block_elems), values)

    for name, kept in TRIMMED:
        kind = TYPES[name]
        values = without_low_bits(kind, ordinary(kind, kind.block_elems, random), kept)
        vectors.encoded(f"window_{name}_keeps_{kept}", name, values, WINDOW)
        base = (1 << (kind.exponent_bits - 1)) - 6
        trimmed = window_payload(kind, values, 3, base, kept=kept, noise=random)
        vectors.decodes(f"foreign_{name}_keeps_{kept}", window_frame(kind, [trimmed], kind.block_elems), values)


def add_invalid(vectors: Vectors) -> None:
    def raw(**changes: int) -> bytes:
        frame = raw_frame("bfloat16", bytes(6), 2)
        frame.header = changes
        return frame.build()

    vectors.invalid("no_bytes", b"")
    vectors.invalid("header_cut", raw()[:63])
    vectors.invalid("body_cut", raw()[:79])
    vectors.invalid("magic", raw(magic=0x5453434F))
    vectors.invalid("version", raw(version=2))
    vectors.invalid("codec", raw(codec=77))
    vectors.invalid("value_type", raw(dtype=12))
    vectors.invalid("value_type_without_window", raw(dtype=0, codec=WINDOW, block_elems=4096, blocks=1))
    vectors.invalid("flags", raw(flags=4))
    vectors.invalid("reserved", raw(reserved=1))
    vectors.invalid("checksum_without_flag", raw(checksum=1))
    vectors.invalid("checksum_wrong", raw(flags=CHECKSUM, checksum=1))
    vectors.invalid("elems_overflow", raw(elems=2**63))
    vectors.invalid("elems_beyond_a_frame", raw(elems=2**34 + 1))
    vectors.invalid("wire_bytes_unaligned", raw(wire_bytes=79))
    vectors.invalid("wire_bytes_too_few", raw(wire_bytes=64))
    vectors.invalid("wire_bytes_too_many", raw(wire_bytes=96) + bytes(16))
    vectors.invalid("raw_with_blocks", raw(blocks=1))

    random = Random(2)
    kind = TYPES["float8_e5m2"]
    # One value above the window and one far above it, so that there are tokens to damage.
    values = values_of(kind, [9 + (i == 5) + 9 * (i == 1234) for i in range(kind.block_elems)], random)
    payload = window_payload(kind, values, 1, 9)
    whole = window_frame(kind, [payload], kind.block_elems)
    vectors.decodes("before_damage", whole, values)
    (word,) = struct.unpack("<I", payload[-4:])

    def block(name: str, damaged: bytes) -> None:
        vectors.invalid(name, window_frame(kind, [damaged], kind.block_elems).build())

    def header_word(name: str, damaged: int) -> None:
        block(name, payload[:-4] + struct.pack("<I", damaged))

    header_word("width_zero", word & ~7)
    header_word("width_six", word & ~7 | 6)
    header_word("base_too_high", word & ~(0x7FF << 3) | 31 << 3)
    header_word("type_that_cannot_be_trimmed", word | 8 << 27)
    header_word("one_escape_too_many", word + (1 << 14))
    header_word("one_escape_too_few", word - (1 << 14))
    header_word("more_escapes_than_values", word & 0x3FFF | 4097 << 14)
    block("longer_than_its_sections", payload[:-16] + bytes(16) + payload[-16:])
    block("shorter_than_its_sections", payload[:1536] + payload[-16:])
    block("far_list_without_room", far_overflow(kind))

    wide = TYPES["float32"]
    halves = without_low_bits(wide, values_of(wide, [120] * wide.block_elems, Random(5)), 11)
    payload = window_payload(wide, halves, 1, 120, kept=11)
    for kept, why in (
        (0, "sections_of_all_bits"),
        (8, "longer_than_the_trim"),
        (24, "all_bits_of_the_type"),
        (9, "bits"),
    ):
        (word,) = struct.unpack("<I", payload[-4:])
        damaged = payload[:-4] + struct.pack("<I", word % 2**27 | kept << 27)
        vectors.invalid(f"kept_{kept}_{why}", window_frame(wide, [damaged], wide.block_elems).build())

    small = TYPES["bfloat16"]
    short = values_of(small, [120] * 9, random)

    def ends(name: str, *wrong: int) -> None:
        frame = window_frame(small, [align(short)], 9)
        frame.ends = list(wrong)
        vectors.invalid(name, frame.build())

    ends("end_zero", 0)
    ends("end_before_the_last", 1)
    ends("end_after_the_last", 3)
    vectors.invalid("short_block_too_long", window_frame(small, [align(short) + bytes(16)], 9).build())
    vectors.invalid("blocks", Frame(9, WINDOW, 9, [align(short)], block_elems=2048, header={"blocks": 2}).build())
    vectors.invalid("block_elems", Frame(9, WINDOW, 9, [align(short)], block_elems=1024).build())


def trimmed(kind: ValueType, values: bytes, bits: int) -> bytes:
    """The values without their low mantissa bits."""
    size = kind.value_bytes
    each = (int.from_bytes(values[at : at + size], "little") for at in range(0, len(values), size))
    return b"".join((value >> bits << bits).to_bytes(size, "little") for value in each)


def add_dense(vectors: Vectors) -> None:
    random = Random(5)
    for name, kind in TYPES.items():
        vectors.encoded(f"dense_{name}", name, ordinary(kind, kind.block_elems, random), DENSE)
    kind = TYPES["float32"]
    vectors.encoded("dense_trimmed", "float32", trimmed(kind, ordinary(kind, 2048, random), 16), DENSE)
    zeros = values_of(kind, [random.below(2) * (120 + random.bell()) for _ in range(kind.block_elems)], random)
    vectors.encoded("dense_zeros", "float32", zeros, DENSE)

    # Valid, but not written by our encoder.
    for name, number, options in (
        ("bfloat16", 0, {}),
        ("float8_e4m3", 7, {"zero_first": True}),
        ("float64", 5, {"zero_first": True}),
        ("float16", 2, {"trim": 4}),
    ):
        kind = TYPES[name]
        top = 1 << (kind.exponent_bits - 1)
        exponents = [max(top - random.bell(), 0) * (random.below(20) > 0) for _ in range(kind.block_elems)]
        values = trimmed(kind, values_of(kind, exponents, random), options.get("trim", 0))
        payload = dense_payload(
            kind, values, number, 8 + number, top, is_far=lambda i: i % 97 == 0, noise=random, **options
        )
        vectors.decodes(f"dense_foreign_{name}", dense_frame(kind, [payload], kind.block_elems), values)

    # Five values in a hundred are escapes, and one of them is far.
    kind = TYPES["bfloat16"]
    values = values_of(kind, [127 + (i % 20 == 0) * (1 + i % 3) for i in range(kind.block_elems)], random)
    payload = dense_payload(kind, values, 3, 29, 127, is_far=lambda i: i == 100)
    vectors.decodes("dense_before_damage", dense_frame(kind, [payload], kind.block_elems), values)

    def block(name: str, damaged: bytes) -> None:
        vectors.invalid(f"dense_{name}", dense_frame(kind, [damaged], kind.block_elems).build())

    block("trim_beyond_the_mantissa", payload[:-1] + bytes([8]))
    block("reserved_bit_of_the_last_byte", payload[:-1] + bytes([0x80]))
    block("longer_than_its_sections", payload[:-16] + bytes(16) + payload[-16:])
    block("shorter_than_its_sections", payload[:2560] + payload[-16:])
    block("too_many_ones", dense_payload(kind, values, 3, 29, 127, is_far=lambda i: i == 0, ones_more=1))
    many = values_of(kind, [127 + 3 * (i < 513) for i in range(kind.block_elems)], random)
    block("too_many_escapes", dense_payload(kind, many, 3, 29, 127))
    block("stream_without_end", payload[:2560] + b"\xff" * (len(payload) - 2565) + payload[-5:])
    small = TYPES["float8_e4m3"]
    values = values_of(small, [8] * small.block_elems, random)
    damaged = dense_payload(small, values, 3, 0, 8)
    damaged = damaged[:-2] + bytes([16]) + damaged[-1:]
    vectors.invalid("dense_base_too_high", dense_frame(small, [damaged], small.block_elems).build())


def add_grouped(vectors: Vectors) -> None:
    random = Random(52)
    kind = TYPES["bfloat16"]
    special = b"".join(struct.pack("<H", bits) for bits in (0x7FC0, 0x7F80, 0xFF80, 0x8000))
    values = bytearray(ordinary(kind, kind.block_elems, random))
    values[:2], values[256:258], values[512:514], values[600:608] = special[:2], special[2:4], special[4:6], special
    for codec in golden_grouped.variants():
        name = f"{codec.name}_{codec.element}" if codec.element != codec.name and codec.element else codec.name
        name += f"_rotate_{codec.rotate}" if codec.rotate > 1 else ""
        vectors.lossy(name, "bfloat16", bytes(values), codec.number, functools.partial(golden_grouped.decode, codec))
        # Any codes, and any scales that are valid.
        payload = bytearray(random.below(256) for _ in range(codec.payload_bytes(kind.block_elems, 2)))
        golden_grouped.make_valid(codec, payload)
        frame = Frame(kind.dtype, codec.number % 256, kind.block_elems, [bytes(payload)])
        frame.header["reserved"] = codec.parameters
        vectors.decodes(f"foreign_{name}", frame, golden_grouped.decode(codec, bytes(payload)))
        scales = kind.block_elems * codec.bits // 8
        if codec.scale != "e8m0":
            wrong = {"e4m3": b"\x80", "float32": bytes(4)}.get(codec.scale, b"\x80\x7f")
            frame.payloads = [bytes(payload[:scales] + wrong + payload[scales + len(wrong) :])]
            vectors.invalid(f"{name}_scale", frame.build())


def add_fields(vectors: Vectors) -> None:
    random = Random(14)
    for kind_name, pattern in (("float32", "f"), ("float64", "d")):
        kind = TYPES[kind_name]
        size = kind.value_bytes

        def field(elems: int, pattern: str = pattern) -> bytes:
            """A parabola with noise in some groups, values that are not finite, and a group of them."""
            values = [(i - 300) ** 2 / 2**14 + random.below(2**10) / 2**10 * (i // 128 % 2) for i in range(elems)]
            values[100], values[101], values[200:232] = -math.inf, math.nan, [math.inf] * 32
            return struct.pack(f"<{elems}{pattern}", *values)

        # A bound that is a float32 below its decimal, and one for which some groups are raw.
        for bound in (0.001, 2.0**-24):
            codec = golden_fields.Absolute(bound)
            decode = functools.partial(codec.decode, value_bytes=size)
            name = f"abs_{kind_name}" + ("_small" if bound < 0.001 else "")
            vectors.lossy(name, kind_name, field(1024), codec.number, decode)
        constant = struct.pack("<f" if size == 4 else "<d", 7.25) * 1024
        vectors.lossy(f"abs_{kind_name}_constant", kind_name, constant, codec.number, decode)

        # Any codes of every width, any start, and values that all groups of a mode share.
        codec = golden_fields.Absolute(0.5)
        modes = [65 if group == 5 else 64 if group % 11 == 7 else group for group in range(31)] + [32]
        words = sum({64: size // 4, 65: 8 * size}.get(mode, mode) for mode in modes)
        noise = bytes(random.below(256) for _ in range(4 * words))
        payload = align(struct.pack("<i", -5) + bytes(modes) + noise)

        def frame(payload: bytes, kind: ValueType = kind, codec: golden_fields.Absolute = codec) -> Frame:
            parameters = {"reserved": codec.parameters}
            return Frame(kind.dtype, codec.id, 1024, [payload], block_elems=1024, header=parameters)

        vectors.decodes(f"foreign_abs_{kind_name}", frame(payload), codec.decode(payload, size))
        for name, damaged in (
            ("mode", payload[:4] + b"\x21" + payload[5:]),
            ("longer_than_its_groups", payload + bytes(16)),
            ("shorter_than_its_groups", payload[:-16]),
            ("without_modes", payload[:32]),
        ):
            vectors.invalid(f"abs_{kind_name}_{name}", frame(damaged).build())

        for bits in (8, 15, 23, 31):
            rate = golden_fields.Rate(bits)
            decode = functools.partial(rate.decode, value_bytes=size)
            vectors.lossy(f"rate_{bits}_{kind_name}", kind_name, field(4096 // size), rate.number, decode)
        rate = golden_fields.Rate(13)
        noise = bytes(random.below(256) for _ in range(rate.payload_bytes(size)))
        foreign = Frame(kind.dtype, rate.id, 4096 // size, [noise], header={"reserved": rate.parameters})
        vectors.decodes(f"foreign_rate_{kind_name}", foreign, rate.decode(noise, size))


def far_overflow(kind: ValueType) -> bytes:
    """24 tokens and the header word fill 16 bytes. One token is changed to need a far exponent, which has no room."""
    random = Random(3)
    values = values_of(kind, [9 + (i < 24) for i in range(kind.block_elems)], random)
    payload = window_payload(kind, values, 1, 9)
    tokens_at = kind.block_elems * 3 // 8 + kind.block_elems // 8
    return payload[:tokens_at] + bytes([payload[tokens_at] | 15]) + payload[tokens_at + 1 :]


def write_corpus(vectors: Vectors, folder: Path) -> None:
    random = Random(4)
    frames = ["raw_bfloat16", "raw_checksum", "window_short_block", "window_bfloat16", "before_damage", "end_zero"]
    lossy = ["int4_rotate_16", "foreign_int8a", "foreign_e4m3", "nvfp4_e2m1"]
    lossy += ["abs_float32", "foreign_abs_float64", "rate_15_float64"]
    seeds: dict[str, dict[str, bytes]] = {
        "decode": {name: vectors.files[f"{name}.frame"] for name in [*frames, "foreign_all_far", *lossy]},
        "inspect": {name: vectors.files[f"{name}.frame"] for name in frames},
        "block": {},
        "round_trip": {},
    }
    for number, (name, kind) in enumerate(TYPES.items()):
        width = 2 + number % 3
        base = (1 << kind.exponent_bits) // 2 - (1 << width) + 2  # the most frequent exponent is the window's last
        values = ordinary(kind, kind.block_elems, random)
        seeds["block"][name] = bytes([number, 0]) + window_payload(kind, values, width, max(base, 0))
        for _, kept in (one for one in TRIMMED if one[0] == name):
            trimmed = window_payload(kind, without_low_bits(kind, values, kept), width, max(base, 0), kept=kept)
            seeds["block"][f"{name}_keeps_{kept}"] = bytes([number, 0]) + trimmed
        shape = (number, 3 * number, max(base, 0))
        seeds["block"][f"dense_{name}"] = bytes([len(TYPES) + number, 0]) + dense_payload(kind, values, *shape)
        few = ordinary(kind, 96, random)
        seeds["round_trip"][name] = bytes([kind.dtype, WINDOW | (number % 4) << 1 | 6 << 3]) + few
    for number, name in enumerate(("abs_float32", "abs_float64", "rate_float32", "rate_float64"), 2 * len(TYPES)):
        header = 80 if name.startswith("abs") else 64
        payload = vectors.files[f"foreign_{name}.frame"][header:]
        seeds["block"][name] = bytes([number, 13 - 8]) + payload
    # Variants of lossy codecs, with values of any bits.
    for number in range(1, 9):
        noise = bytes(random.below(256) for _ in range(200))
        seeds["round_trip"][f"lossy_{number}"] = (
            bytes([12 * number + (6, 7, 9)[number % 3], number % 4 << 6 | 4 << 3]) + noise
        )
    seeds["round_trip"]["equal_values"] = bytes([7, 0xFD]) + bytes([0xFD]) * 43
    seeds["round_trip"]["raw"] = bytes([2, RAW]) + bytes(range(9))
    for target, files in seeds.items():
        write(folder / target, files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="path of libnarrowcast.so, whose reference encoder is used")
    vectors = Vectors(Encoder(parser.parse_args().library))
    add_valid(vectors)
    add_invalid(vectors)
    add_dense(vectors)
    add_grouped(vectors)
    add_fields(vectors)
    write_corpus(vectors, ROOT / "tests/fuzz/corpus")
    manifest = "# Made by tools/make_golden.py. [encoded, lossy] NAME dtype codec flags | decodes NAME | invalid NAME\n"
    vectors.files["manifest.txt"] = (manifest + "\n".join(vectors.lines) + "\n").encode()
    replace(ROOT / f"tests/golden/v{VERSION}", vectors.files)
    print(f"{len(vectors.lines)} vectors, {sum(map(len, vectors.files.values()))} bytes")


if __name__ == "__main__":
    main()
