"""The valid values of settings, as the drop-in and the library parse them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from .._native.codecs import comm_codec_number, split_codecs, split_operation
from .._native.operations import operations
from .._native.settings import ATTACHES, DEBUG_LEVELS, NETWORKS, TAKES
from ..errors import LibraryNotFoundError

_LEVELS = ("auto", "1", "2")
_PATHS = ("packets", "packets:one_shot", "packets:two_shot", "blocks")
_MAX_CTAS = 64
_SHARED_KIB = range(64, 228)
_FLAGS = ("1", "true", "all", "0", "false")


def _listed(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def _is_whole(value: str) -> bool:
    return re.fullmatch("[0-9]+", value) is not None and int(value) < 1 << 64


def _is_seconds(value: str) -> bool:
    try:
        return float(value) >= 0
    except ValueError:
        return False


def _with_library(understood: Callable[[str], bool]) -> Callable[[str], bool]:
    """Accepts every value if the library, which knows the valid ones, is missing. `doctor` reports that."""

    def check(value: str) -> bool:
        try:
            return understood(value)
        except LibraryNotFoundError:
            return True

    return check


@_with_library
def _is_codec(value: str) -> bool:
    try:
        comm_codec_number(value)
    except ValueError:
        return False
    return True


@_with_library
def _is_codecs(value: str) -> bool:
    for entry in split_codecs(value):
        operation, codec = split_operation(entry)
        if not _is_codec(codec) or operation not in (None, *operations()):
            return False
    return True


@_with_library
def _is_operation(value: str) -> bool:
    return value in operations()


def _one_of(known: Iterable[str]) -> Callable[[str], bool]:
    return tuple(known).__contains__


def _alternatives(known: Iterable[str]) -> str:
    *most, last = known
    return f"{', '.join(most)} or {last}"


# By name without the prefix: whether a value is valid, and a description of valid values.
_EXPECTED: dict[str, tuple[Callable[[str], bool], str]] = {
    "ATTACH": (_one_of(ATTACHES), _alternatives(ATTACHES)),
    "CALIBRATE": (_one_of(_FLAGS), "1 or 0"),
    "CODEC": (_is_codecs, "auto or a codec, or a list of OPERATION=CODEC"),
    "DEBUG": (lambda value: value.upper() in DEBUG_LEVELS, _alternatives(DEBUG_LEVELS)),
    "LEVELS": (_one_of(_LEVELS), _alternatives(_LEVELS)),
    "MAX_CTAS": (
        lambda value: value == "auto" or (_is_whole(value) and 1 <= int(value) <= _MAX_CTAS),
        f"auto or a number from 1 to {_MAX_CTAS}",
    ),
    "NET": (_one_of(NETWORKS), _alternatives(NETWORKS)),
    "NVTX": (_one_of(_FLAGS), "1 or 0"),
    "OFF": (
        lambda value: value in _FLAGS or all(_is_operation(one) for one in _listed(value)),
        "1, or a list of operations such as all_reduce,send",
    ),
    "P2P": (_one_of("01"), "0 or 1"),
    "PATH": (_one_of(_PATHS), _alternatives(_PATHS)),
    "SCRATCH_BYTES": (_is_whole, "a whole number of bytes"),
    "SHARED_KIB": (
        lambda value: _is_whole(value) and int(value) in _SHARED_KIB,
        f"a number from {_SHARED_KIB[0]} to {_SHARED_KIB[-1]}",
    ),
    "STATS_SECONDS": (_is_seconds, "a number of seconds"),
    "TRACEBACK": (_one_of("01"), "0 or 1"),
    "TAKE": (_one_of(TAKES), _alternatives(TAKES)),
    "VERIFY": (_one_of(_FLAGS), "1 or 0"),
}


def expected(name: str, value: str) -> str | None:
    """A description of valid values if the value is invalid; otherwise None. name: without the prefix, in capitals."""
    understood, words = _EXPECTED.get(name, (_one_of(()), ""))
    # An empty setting is ignored.
    return words if words and value and not understood(value) else None


def text_of(value: Any) -> str | None:
    """A value of a TOML file in the form of the environment variable; None if its type is unsupported."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, list):
        parts = [text_of(entry) for entry in value]
        return None if None in parts else ",".join(part or "" for part in parts)
    return None
