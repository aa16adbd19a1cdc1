"""Generates the golden vectors of rows in tests/golden/rows_v1/, from docs/format/rows.md alone.

Run it after an intended change of the format or of the encoder's choices, and review the differences:

    python tools/make_golden_rows.py

The library encodes the rows of kind `encoded` to the same bytes. Rows of kind `decodes` have other encoders' choices.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from golden_values import ROOT, TYPES, Random, ValueType, index_of, nearest_token, ordinary, packed, replace

VERSION = 1
PLAIN, WINDOW, INVARIANT = 1, 2, 3
ZEROS, TRIM = 1, 2
INTEGERS = {"uint8": (1, 1), "int32": (2, 4), "uint32": (3, 4), "int64": (4, 8)}


@dataclass(frozen=True)
class Model:
    dtype: int
    value_bytes: int
    elems: int
    coder: int
    stages: int = 0
    low_bits: int = 0
    high_bits: int = 0
    low: int = 0
    high: int = 0
    chunk: int = 0
    masks: tuple[tuple[bytes, bytes], ...] = ()  # masks and values of each cluster

    @property
    def coded_bits(self) -> int:
        return 8 * self.value_bytes - self.low_bits - self.high_bits

    def build(self, version: int = VERSION, reserved: int = 0) -> bytes:
        fields = (version, self.dtype, self.coder, self.stages, self.elems, self.low_bits, self.high_bits, self.chunk)
        head = struct.pack("<BBBBIBBBBIQQ", *fields, reserved, len(self.masks), self.low, self.high)
        return head + b"".join(mask + values for mask, values in self.masks)

    def trimmed(self, low: int = -1, high: int = -1) -> bytes:
        """The trimmed bits of a row, or bits in their place."""
        bits = 8 * self.value_bytes
        low, high = low & ((1 << self.low_bits) - 1), high & ((1 << self.high_bits) - 1)
        return (low | high << (bits - self.high_bits)).to_bytes(self.value_bytes, "little") * self.elems

    def elements(self, row: bytes) -> list[int]:
        return [
            int.from_bytes(row[at : at + self.value_bytes], "little") for at in range(0, len(row), self.value_bytes)
        ]

    def coded(self, row: bytes) -> list[int]:
        """The coded bits of the elements that reach the coder."""
        present = [value for value in self.elements(row) if value or not self.stages & ZEROS]
        return [value >> self.low_bits & ((1 << self.coded_bits) - 1) for value in present]

    def zero_map(self, row: bytes) -> int:
        return sum((value != 0) << i for i, value in enumerate(self.elements(row)))


class Bits:
    """A stream of bits, from bit 0 of its first word."""

    def __init__(self) -> None:
        self.value = self.count = 0

    def put(self, value: int, count: int) -> None:
        self.value |= value << self.count
        self.count += count

    def words(self) -> bytes:
        return self.value.to_bytes((self.count + 31) // 32 * 4, "little")


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def raw(row: bytes) -> bytes:
    return struct.pack("<I", 4) + padded(row)


def plain(model: Model, row: bytes) -> bytes:
    bits = Bits()
    bits.put(0, 3)
    if model.stages & ZEROS:
        bits.put(model.zero_map(row), model.elems)
    for value in model.coded(row):
        bits.put(value, model.coded_bits)
    return bits.words()


def invariant(model: Model, row: bytes, cluster: int | None = None) -> bytes:
    """Encodes with the cluster that gives the shortest payload, unless one is given."""
    if cluster is None:
        cluster = min(range(len(model.masks)), key=lambda each: stream(model, row, each).count)
    return stream(model, row, cluster).words()


def stream(model: Model, row: bytes, cluster: int) -> Bits:
    size = model.chunk
    chunks = [
        tuple(int.from_bytes(data[at : at + size], "little") for data in (row, *model.masks[cluster], model.trimmed()))
        for at in range(0, len(row), size)
    ]
    bits = Bits()
    bits.put(0, 3)
    bits.put(cluster, (len(model.masks) - 1).bit_length())
    if model.stages & ZEROS:
        for chunk, *_ in chunks:
            bits.put(int(chunk != 0), 1)
        chunks = [each for each in chunks if each[0]]
    for chunk, mask, values, _ in chunks:
        bits.put(int(chunk & mask == values), 1)
    for chunk, mask, values, trimmed in chunks:
        omitted = mask if chunk & mask == values else trimmed
        for bit in range(8 * size):
            if not omitted >> bit & 1:
                bits.put(chunk >> bit & 1, 1)
    return bits


# --- the coder window -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How the coded bits of an element are divided."""

    kind: ValueType
    low_bits: int

    @property
    def tail_bytes(self) -> int:
        return self.kind.tail_bytes - self.low_bits // 8

    @property
    def rest_bits(self) -> int:
        return 0 if self.kind.value_bytes == 2 and self.low_bits else self.kind.rest_bits

    @property
    def mantissa_bits(self) -> int:
        return self.kind.mantissa_bits - self.low_bits - 8 * self.tail_bytes

    @property
    def far_bytes(self) -> int:
        return 2 if self.kind.exponent_bits > 8 else 1

    def parts(self, value: int) -> tuple[int, int, int]:
        """Exponent, rest and tail."""
        head, tail = value >> 8 * self.tail_bytes, value % (1 << 8 * self.tail_bytes)
        exponents = 1 << self.kind.exponent_bits
        exponent, sign = head >> self.mantissa_bits, head >> self.mantissa_bits + self.kind.exponent_bits
        return exponent % exponents, sign << self.mantissa_bits | head % (1 << self.mantissa_bits), tail


def place(layout: Layout, exponents: list[int]) -> tuple[int, int]:
    """The width and base that our encoder chooses."""
    kind, in_lanes = layout.kind, len(exponents) // 32 * 32
    count = min(256, in_lanes)
    samples = [exponents[i * in_lanes // count] for i in range(count)]
    columns = count // 4
    anchor = max((min(samples[column::columns]) for column in range(columns)), default=0)
    lowest = max(anchor - 20, 0)
    counted = [exponent - lowest for exponent in samples if lowest <= exponent < lowest + 32]

    escape = 6 if kind.exponent_bits == 8 and count >= 128 else 4

    def cost(width: int, first: int) -> int:
        span = (1 << width) - 1
        inside = sum(first <= each < first + span for each in counted)
        near = sum(first - 10 <= each < first + span + 4 for each in counted if each + lowest != 0)
        far = count - near - samples.count(0)
        return width * count + escape * (count - inside) + 8 * layout.far_bytes * far

    choices = [(width, first) for width in range(min(kind.exponent_bits, 5), 0, -1) for first in range(32)]
    width, first = min(choices, key=lambda choice: cost(*choice))
    return width, min(lowest + first, (1 << kind.exponent_bits) - (1 << width))


def window(kind: ValueType, model: Model, row: bytes, choice: tuple[int, int] | None = None) -> bytes:
    """Encodes with the width and base that our encoder chooses, unless they are given."""
    layout, values = Layout(kind, model.low_bits), model.coded(row)
    parts = [layout.parts(value) for value in values]
    width, base = choice or place(layout, [exponent for exponent, _, _ in parts])
    escape_code, run = (1 << width) - 1, 16 // kind.value_bytes
    token_of = nearest_token(base, escape_code)
    body, tokens, far = b"", [], []
    if model.stages & ZEROS:
        body = padded(model.zero_map(row).to_bytes((model.elems + 7) // 8, "little"))
    in_lanes = len(values) // 32 * 32
    for first in range(0, in_lanes, 1024):
        group = parts[first : min(first + 1024, in_lanes)]
        lanes = len(group) // 32
        codes = [e - base if 0 <= e - base < escape_code else escape_code for e, _, _ in group]
        body += b"".join(tail.to_bytes(layout.tail_bytes, "little") for _, _, tail in group)
        if kind.rest_bytes:
            body += bytes(rest % 256 for _, rest, _ in group)
        if layout.rest_bits:
            body += packed(run, lanes, layout.rest_bits, [rest >> 8 * kind.rest_bytes for _, rest, _ in group])
        body += packed(run, lanes, width, codes)
        for lane in range(lanes):
            for byte in range(4):
                for word in range(8):
                    index = index_of(run, lanes, lane, byte, word)
                    if codes[index] == escape_code:
                        tokens.append(token_of(index, group[index][0]))
                        far += [group[index][0]] if tokens[-1] == 15 else []
    body += b"".join(value.to_bytes((model.coded_bits + 7) // 8, "little") for value in values[in_lanes:])
    pairs = [*tokens, 0]
    body += bytes(pairs[2 * i] | pairs[2 * i + 1] << 4 for i in range((len(tokens) + 1) // 2))
    body += b"".join(exponent.to_bytes(layout.far_bytes, "little") for exponent in far)
    return struct.pack("<I", width << 3 | base << 6 | len(tokens) << 17) + padded(body)


# --- the vectors ----------------------------------------------------------------------------------------------------


@dataclass
class Vectors:
    files: dict[str, bytes] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, model: bytes, payload: bytes = b"", row: bytes = b"") -> None:
        self.lines.append(f"{kind} {name}")
        self.files[f"{name}.model"] = model
        if payload:
            self.files[f"{name}.payload"] = payload
        if row:
            self.files[f"{name}.row"] = row


def sparse(row: bytes, value_bytes: int, random: Random) -> bytes:
    parts = (row[at : at + value_bytes] for at in range(0, len(row), value_bytes))
    return b"".join(part if random.below(3) == 0 else bytes(value_bytes) for part in parts)


def numbers(value_bytes: int, elems: int, value_of: Callable[[int], int]) -> bytes:
    return b"".join(value_of(i).to_bytes(value_bytes, "little") for i in range(elems))


def geometric(random: Random) -> int:
    """The number of successes, with a chance of 65%, before the first failure."""
    count = 0
    while random.below(20) < 13 and count < 10:
        count += 1
    return count


def add_plain(vectors: Vectors, random: Random) -> None:
    def add(name: str, model: Model, row: bytes) -> None:
        vectors.add("encoded", name, model.build(), plain(model, row), row)

    row = sparse(ordinary(TYPES["float32"], 75, random), 4, random)
    add("plain_zeros_float32", Model(TYPES["float32"].dtype, 4, 75, PLAIN, ZEROS), row)
    trim = Model(*INTEGERS["uint32"], 50, PLAIN, TRIM, low_bits=4, high_bits=12, low=9, high=0xABC)
    row = numbers(4, 50, lambda _: 0xABC << 20 | random.below(1 << 16) << 4 | 9)
    add("plain_trim_uint32", trim, row)
    vectors.add("encoded", "raw_other_constant_bits", trim.build(), raw(bytes(4) + row[4:]), bytes(4) + row[4:])
    counts = Model(*INTEGERS["int64"], 40, PLAIN, ZEROS | TRIM, high_bits=57)
    add("plain_zeros_trim_int64", counts, sparse(numbers(8, 40, lambda _: 1 + random.below(100)), 8, random))
    constant = Model(*INTEGERS["uint8"], 33, PLAIN, ZEROS | TRIM, low_bits=8, low=7)
    add("plain_constant_uint8", constant, sparse(bytes([7]) * 33, 1, random))
    vectors.add("encoded", "raw_not_shorter", Model(*INTEGERS["uint8"], 4, PLAIN).build(), raw(b"abcd"), b"abcd")


def add_window(vectors: Vectors, random: Random) -> None:
    for name, kind in TYPES.items():
        elems = {1: 1100, 2: 1100}.get(kind.value_bytes, 101)
        row, model = ordinary(kind, elems, random), Model(kind.dtype, kind.value_bytes, elems, WINDOW)
        vectors.add("encoded", f"window_{name}", model.build(), window(kind, model, row), row)
        wide, base = 2 + kind.dtype % 2, (1 << kind.exponent_bits) // 2 - 3
        vectors.add("decodes", f"window_foreign_{name}", model.build(), window(kind, model, row, (wide, base)), row)
    for name, low_bits in (("float16", 3), ("float32", 8), ("float32", 16), ("float64", 24), ("float64", 48)):
        kind = TYPES[name]
        low = 5 if low_bits == 3 else 0x1234 % (1 << low_bits)
        values = ordinary(kind, 101, random)
        bits = (
            int.from_bytes(values[at : at + kind.value_bytes], "little")
            for at in range(0, len(values), kind.value_bytes)
        )
        row = b"".join((each >> low_bits << low_bits | low).to_bytes(kind.value_bytes, "little") for each in bits)
        model = Model(kind.dtype, kind.value_bytes, 101, WINDOW, TRIM, low_bits=low_bits, low=low)
        vectors.add("encoded", f"window_trim_{low_bits}_{name}", model.build(), window(kind, model, row), row)
        model = Model(kind.dtype, kind.value_bytes, 101, WINDOW, ZEROS | TRIM, low_bits=low_bits, low=low)
        row = sparse(row, kind.value_bytes, random)
        vectors.add("encoded", f"window_zeros_trim_{low_bits}_{name}", model.build(), window(kind, model, row), row)
    # The window would be narrower if escapes cost no more than their tokens.
    random = Random(12)
    row = numbers(2, 160, lambda _: random.below(2) << 15 | (120 - geometric(random)) << 7 | random.below(128))
    kind = TYPES["bfloat16"]
    model = Model(kind.dtype, kind.value_bytes, 160, WINDOW)
    vectors.add("encoded", "window_few_escapes_bfloat16", model.build(), window(kind, model, row), row)


def add_invariant(vectors: Vectors, random: Random) -> None:
    def noise(count: int) -> bytes:
        return bytes(random.below(256) for _ in range(count))

    for chunk, clusters in ((1, 1), (2, 3), (4, 1), (4, 5), (8, 4)):
        masks = []
        for _ in range(clusters):
            mask = bytes(a | b for a, b in zip(noise(48), noise(48), strict=True))
            masks.append((mask, bytes(a & b for a, b in zip(mask, noise(48), strict=True))))
        model = Model(*INTEGERS["uint8"], 48, INVARIANT, chunk=chunk, masks=tuple(masks))
        mask, values = masks[-1]
        row = bytearray(v | other & ~m for m, v, other in zip(mask, values, noise(48), strict=True))
        row[17] ^= 0xFF  # a chunk that has other bits
        name = f"invariant_{chunk}_{clusters}"
        vectors.add("encoded", name, model.build(), invariant(model, bytes(row)), bytes(row))
        if clusters > 1:
            vectors.add("decodes", f"{name}_foreign", model.build(), invariant(model, bytes(row), 0), bytes(row))


def add_staged_invariant(vectors: Vectors, random: Random) -> None:
    def noise(count: int) -> bytes:
        return bytes(random.below(256) for _ in range(count))

    stages = ((1, 1, ZEROS, "zeros"), (2, 3, TRIM, "trim"), (4, 2, ZEROS | TRIM, "zeros_trim"), (8, 1, ZEROS, "zeros"))
    for chunk, clusters, stage, name in stages:
        trim = (3, 9, 5, 257) if stage & TRIM else (0, 0, 0, 0)
        plan = Model(*INTEGERS["uint32"], 16, INVARIANT, stage, *trim, chunk=chunk)
        trimmed, constant = plan.trimmed(), plan.trimmed(plan.low, plan.high)
        masks = []
        for _ in range(clusters):
            mask = bytes(a & b | t for a, b, t in zip(noise(64), noise(64), trimmed, strict=True))
            kept = zip(mask, noise(64), trimmed, constant, strict=True)
            masks.append((mask, bytes(m & v & ~t | c for m, v, t, c in kept)))
        model = dataclasses.replace(plan, masks=tuple(masks))
        mask, values = masks[-1]
        row = bytearray(v | other & ~m for m, v, other in zip(mask, values, noise(64), strict=True))
        for at in (13, 38):  # chunks that have other bits
            row[at] = row[at] & trimmed[at] | ~row[at] & ~trimmed[at] & 0xFF
        if stage & ZEROS:
            row[16:32] = bytes(16)
        vectors.add(
            "encoded", f"invariant_{name}_{chunk}_{clusters}", model.build(), invariant(model, bytes(row)), bytes(row)
        )


def add_invalid(vectors: Vectors, random: Random) -> None:
    kind = TYPES["bfloat16"]
    model, row = Model(kind.dtype, 2, 100, WINDOW), ordinary(kind, 100, random)
    good = window(kind, model, row)
    (word,) = struct.unpack("<I", good[:4])

    def header(name: str, damaged: int) -> None:
        vectors.add("invalid", name, model.build(), struct.pack("<I", damaged) + good[4:])

    header("redirected", 1)
    header("unknown_place", word | 2)
    header("raw_with_other_bits", 4 | 1 << 20)
    header("width_zero", word & ~0x38)
    header("width_six", word & ~0x38 | 6 << 3)
    header("base_too_high", word & ~(0x7FF << 6) | 255 << 6)
    header("one_escape_too_few", word - (1 << 17))
    header("one_escape_too_many", word + (1 << 17))
    vectors.add("invalid", "window_cut", model.build(), good[:-4])
    vectors.add("invalid", "raw_cut", model.build(), raw(row)[:-4])
    trim = Model(*INTEGERS["uint32"], 50, PLAIN, TRIM, high_bits=16)
    vectors.add("invalid", "plain_cut", trim.build(), plain(trim, bytes(200))[:-4])
    clusters = Model(*INTEGERS["uint8"], 48, INVARIANT, chunk=1, masks=((bytes(48), bytes(48)),) * 3)
    vectors.add("invalid", "no_such_cluster", clusters.build(), struct.pack("<I", 3 << 3) + bytes(56))

    def reject(name: str, damaged: bytes) -> None:
        vectors.add("invalid_model", name, damaged)

    reject("model_version", model.build(version=2))
    reject("model_reserved", model.build(reserved=1))
    reject("model_cut", model.build()[:-1])
    reject("model_longer", model.build() + bytes(1))
    reject("model_without_elements", Model(kind.dtype, 2, 0, WINDOW).build())
    reject("model_too_long_row", Model(kind.dtype, 2, 32769, WINDOW).build())
    reject("model_value_type", Model(12, 2, 100, PLAIN).build())
    reject("model_coder", Model(kind.dtype, 2, 100, 4).build())
    reject("model_stages", Model(kind.dtype, 2, 100, PLAIN, 4).build())
    bare = Model(kind.dtype, 2, 1, INVARIANT, TRIM, low_bits=3, chunk=1, masks=((b"\1\0", bytes(2)),))
    reject("model_mask_without_trim", bare.build())
    reject("model_window_of_integers", Model(*INTEGERS["int32"], 100, WINDOW).build())
    reject("model_window_after_other_trim", Model(kind.dtype, 2, 100, WINDOW, TRIM, low_bits=8).build())
    reject("model_trim_of_33_bits", Model(*INTEGERS["int32"], 100, PLAIN, TRIM, low_bits=16, high_bits=17).build())
    reject("model_value_of_more_bits", Model(*INTEGERS["int32"], 100, PLAIN, TRIM, low_bits=2, low=4).build())
    reject("model_bits_without_trim", Model(*INTEGERS["int32"], 100, PLAIN, low_bits=2).build())
    reject("model_chunk_of_3", Model(*INTEGERS["uint8"], 3, INVARIANT, chunk=3, masks=((bytes(3), bytes(3)),)).build())
    reject(
        "model_part_of_a_chunk", Model(*INTEGERS["uint8"], 3, INVARIANT, chunk=2, masks=((bytes(3), bytes(3)),)).build()
    )
    reject("model_without_clusters", Model(*INTEGERS["uint8"], 4, INVARIANT, chunk=2).build())
    reject(
        "model_value_outside_mask", Model(*INTEGERS["uint8"], 1, INVARIANT, chunk=1, masks=((b"\1", b"\3"),)).build()
    )


def main() -> None:
    vectors, random = Vectors(), Random(11)
    add_plain(vectors, random)
    add_window(vectors, random)
    add_invariant(vectors, random)
    add_invalid(vectors, random)
    add_staged_invariant(vectors, random)
    manifest = "# Made by tools/make_golden_rows.py from version 1 of docs/format/rows.md\n"
    manifest += "# encoded NAME | decodes NAME | invalid NAME | invalid_model NAME\n"
    vectors.files["manifest.txt"] = (manifest + "\n".join(vectors.lines) + "\n").encode()
    replace(ROOT / f"tests/golden/rows_v{VERSION}", vectors.files)
    print(f"{len(vectors.lines)} vectors, {sum(map(len, vectors.files.values()))} bytes")


if __name__ == "__main__":
    main()
