"""Reads JSON documents of unknown origin: values that know their place, for error messages."""

from __future__ import annotations

import collections
import json
from typing import Any, NoReturn

from ...errors import InvalidArgumentError

__all__ = ["Value", "load"]


def load(data: bytes) -> Value:
    """The root of a document.

    Raises InvalidArgumentError if it is not JSON, nested too deeply, or has a key twice or a number that is too long.
    """
    if not data.strip():
        raise InvalidArgumentError("the document is empty")
    try:
        return Value(_decoder.decode(data.decode("utf-8-sig")))
    except RecursionError:
        raise InvalidArgumentError("the document is nested too deeply") from None
    except InvalidArgumentError:
        raise
    except UnicodeDecodeError:
        raise InvalidArgumentError("the document is neither XML nor JSON: it is not text in UTF-8") from None
    except ValueError as error:
        raise InvalidArgumentError(f"the document is not JSON: {error}") from None


def _integer(digits: str) -> int:
    if len(digits) > 20:  # more than 64 bits; Python would need quadratic time
        raise InvalidArgumentError(f"the number {digits[:20]}... is too large")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise InvalidArgumentError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
        raise InvalidArgumentError(f"an object has the key {twice[:40]!r} twice")
    return found


_decoder = json.JSONDecoder(parse_int=_integer, parse_constant=_constant, object_pairs_hook=_unique)


class Value:
    """A value of a document, and where it is."""

    __slots__ = ("key", "parent", "raw")

    def __init__(self, raw: Any, parent: Value | None = None, key: str | int = "") -> None:
        self.raw = raw
        self.parent = parent
        self.key = key

    @property
    def path(self) -> str:
        """Such as `gpus[0].threadblocks[3].ops[7]`."""
        if self.parent is None:
            return ""
        before = self.parent.path
        if isinstance(self.key, int):
            return f"{before}[{self.key}]"
        return f"{before}.{self.key}" if before else self.key

    def fail(self, message: str) -> NoReturn:
        """Raises the error for this value."""
        raise InvalidArgumentError(f"{self.path}: {message}" if self.parent is not None else message)

    def __contains__(self, key: str) -> bool:
        return isinstance(self.raw, dict) and key in self.raw

    def __getitem__(self, key: str) -> Value:
        """The member of an object, which must exist."""
        if not isinstance(self.raw, dict):
            self.fail(f"an object is expected, not {_shown(self.raw)}")
        if key not in self.raw:
            self.fail(f"{key!r} is missing")
        return Value(self.raw[key], self, key)

    def items(self) -> list[Value]:
        """The elements of an array."""
        if not isinstance(self.raw, list):
            self.fail(f"an array is expected, not {_shown(self.raw)}")
        return [Value(element, self, index) for index, element in enumerate(self.raw)]

    def optional(self, key: str) -> list[Value]:
        """The elements of a member that is an array; none if there is no such member."""
        return self[key].items() if key in self else []

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""
        if type(self.raw) is not int or not low <= self.raw <= high:
            self.fail(f"a whole number from {low} to {high} is expected, not {_shown(self.raw)}")
        return self.raw

    def string(self) -> str:
        """A string."""
        if not isinstance(self.raw, str):
            self.fail(f"a string is expected, not {_shown(self.raw)}")
        return self.raw

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.raw, bool):
            self.fail(f"true or false is expected, not {_shown(self.raw)}")
        return self.raw

    def choice(self, known: dict[str, str]) -> str:
        """What `known` has for the string."""
        found = known.get(self.string())
        if found is None:
            self.fail(f"{_shown(self.raw)} is not one of {', '.join(known)}")
        return found


def _shown(raw: Any) -> str:
    if isinstance(raw, (dict, list)):
        return "an object" if isinstance(raw, dict) else "an array"
    text = json.dumps(raw)
    return text if len(text) <= 40 else text[:40] + "..."
