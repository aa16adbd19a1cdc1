"""Payloads of the codec `dense`, from docs/format/dense.md alone: any code, order, base and trim, whatever suits it."""

from __future__ import annotations

import re
from collections.abc import Callable

from golden_values import ROOT, Random, ValueType

MOST_ESCAPES = 512


def _orders() -> list[str]:
    """The signs of the ranks from 1 on, from the table of the page."""
    page = (ROOT / "docs/format/dense.md").read_text("utf-8")
    found = {int(number): signs for number, signs in re.findall(r"\| (\d+) \| `([+-]{12})`", page)}
    return [found[number] + "-" * 12 for number in range(32)]


ORDERS = _orders()


def _positions(order: int, zero_first: bool, zero: int) -> list[int]:
    above = below = 0
    positions = [0]
    for sign in ORDERS[order]:
        if sign == "+":
            above += 1
            positions.append(above)
        else:
            below -= 1
            positions.append(below)
    return [zero, *positions] if zero_first else positions


def _plane(kind: ValueType, bits: list[int]) -> bytes:
    """A bit of each value of a group."""
    run = 16 // kind.value_bytes
    out = b""
    for lane in range(32):
        word = sum(bits[(32 * (j // run) + lane) * run + j % run] << j for j in range(32))
        out += word.to_bytes(4, "little")
    return out


def _in_order(kind: ValueType, group: int) -> list[int]:
    """The indices of a group's values as the stream has them."""
    run = 16 // kind.value_bytes
    return [1024 * group + (32 * (j // run) + lane) * run + j % run for lane in range(32) for j in range(32)]


def dense_payload(
    kind: ValueType,
    values: bytes,
    code: int,
    order: int,
    base: int,
    *,
    trim: int = 0,
    zero_first: bool = False,
    is_far: Callable[[int], bool] = lambda index: False,
    ones_more: int = 0,
    noise: Random | None = None,
) -> bytes:
    """A payload as specified. `is_far` selects values to write as far although they have a rank.

    ones_more: is added to the ones of the first escape, which is then invalid.
    """
    n, single, paired = kind.block_elems, code % 4, code // 4
    bits = [int.from_bytes(values[i * kind.value_bytes :][: kind.value_bytes], "little") for i in range(n)]
    m = kind.mantissa_bits
    exponents = [value >> m & ((1 << kind.exponent_bits) - 1) for value in bits]
    rests = [(value >> (m + kind.exponent_bits) << m | value % 2**m) >> trim for value in bits]
    kept = 1 + m - trim
    wide = kind.exponent_bits > 8

    def position_of(exponent: int) -> int:
        if wide and exponent == 0:
            return 128
        return (exponent - base) % 256

    zero = 128 if wide else -base
    rank_count = 6 - single + 16
    ranks: dict[int, int] = {}
    for rank, position in reversed(list(enumerate(_positions(order, zero_first, zero)[:rank_count]))):
        ranks[position % 256] = rank

    out = b"".join(bytes(rest >> 8 * column & 255 for rest in rests) for column in range(kept // 8))
    digits, stream, far = b"", [], []
    planes = b""
    for group in range(n // 1024):
        of_group = range(1024 * group, 1024 * group + 1024)
        planes += b"".join(
            _plane(kind, [rests[i] >> (kept // 8 * 8 + plane) & 1 for i in of_group]) for plane in range(kept % 8)
        )
        digit, extra, ones = (
            dict.fromkeys(of_group, 3),
            dict.fromkeys(of_group, 0),
            dict.fromkeys(of_group, 16 >> paired),
        )
        for i in _in_order(kind, group):
            position = position_of(exponents[i])
            rank = ranks.get(position, rank_count)
            if rank == rank_count or is_far(i):
                far.append(position)
            elif rank < single:
                digit[i] = rank
            elif rank < 6 - single:
                digit[i], extra[i] = single + (rank - single) // 2, (rank - single) % 2
            else:
                after = rank - (6 - single)
                ones[i], extra[i] = (after // 2, after % 2) if paired else (after, 0)
        digits += _plane(kind, [digit[i] & 1 for i in of_group]) + _plane(kind, [digit[i] >> 1 for i in of_group])
        order_of_stream = _in_order(kind, group)
        escapes = [i for i in order_of_stream if digit[i] == 3]
        stream += [extra[i] for i in order_of_stream if single <= digit[i] < 3]
        stream += [extra[i] for i in escapes if paired]
        for i in escapes:
            stream += [1] * (ones[i] + ones_more) + [0]
            ones_more = 0
    padded = [*stream, *[0] * (-len(stream) % 8)]
    out += planes + digits
    out += bytes(sum(bit << place for place, bit in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8))
    word = (code | order << 3 | base << 8).to_bytes(3 if wide else 2, "little")
    end = bytes(reversed(far)) + word * (n // 1024) + bytes([trim | zero_first << 6])
    padding = -(len(out) + len(end)) % 16
    return out + bytes(noise.below(256) if noise else 0 for _ in range(padding)) + end
