"""The codecs of the library, and their text form, which the library parses and formats."""

from __future__ import annotations

import functools
import os
from ctypes import byref, c_char_p, c_uint64, create_string_buffer, sizeof
from dataclasses import dataclass

from ..types import BY_NUMBER
from .library import check, library
from .operations import operations
from .structures import CODEC_TEXT_BYTES, CodecInfoC

AUTO, WITHIN = 255, 254
_FIRST_USER_CODEC = 192
PARAMETER_KINDS = ("integer", "power of two", "real", "choice")  # by ncast_parameter_kind


@dataclass(frozen=True)
class CodecParameter:
    """A parameter of a codec."""

    name: str
    kind: str  #: "integer", "power of two", "real" or "choice"
    least: float
    most: float
    default: float
    choices: tuple[str, ...] = ()  #: the names of the values 1, 2 and so on of a "choice"

    def text(self, value: float) -> str:
        """A value of the parameter as the text of a codec contains it."""
        return self.choices[int(value) - 1] if self.choices else f"{value:g}"


@dataclass(frozen=True)
class CodecType:
    """A value type that a codec encodes."""

    dtype: str
    block_bytes: int  #: bytes of the values of a block
    prior_ratio: float  #: wire bytes / raw bytes that the cost model assumes


@dataclass(frozen=True)
class Codec:
    """A codec that the library has, or that was registered."""

    name: str
    number: int  #: its id in frames; those from 192 on are registered
    exact: bool  #: decodes to the bits that were encoded; otherwise to values within `codec_error_bound`
    fixed_payload: bool  #: all whole blocks of a type have payloads of the same length
    parameters: tuple[CodecParameter, ...]
    types: tuple[CodecType, ...]  #: values of other types are stored raw
    counters: tuple[str, ...]  #: of `inspect_blocks`

    @property
    def registered(self) -> bool:
        """Whether it is a codec of `register_codec`."""
        return self.number >= _FIRST_USER_CODEC


@functools.cache
def codecs() -> tuple[Codec, ...]:
    """The codecs of the library. "auto", which calls of a communicator also accept, is not a codec."""
    found = []
    for index in range(library().ncast_codec_count()):
        info = CodecInfoC(sizeof(CodecInfoC))
        check(library().ncast_codec_describe(index, byref(info)))
        parameters = [info.parameters[i] for i in range(info.parameter_count)]
        types = [info.types[i] for i in range(info.type_count)]
        found.append(
            Codec(
                name=info.name.decode(),
                number=info.codec,
                exact=bool(info.exact),
                fixed_payload=bool(info.fixed_payload),
                parameters=tuple(
                    CodecParameter(
                        one.name.decode(),
                        PARAMETER_KINDS[one.kind],
                        one.least,
                        one.most,
                        one.default_value,
                        tuple(one.choices.decode().split("|")) if one.choices else (),
                    )
                    for one in parameters
                ),
                types=tuple(CodecType(BY_NUMBER[one.dtype].name, one.block_bytes, one.prior_ratio) for one in types),
                counters=tuple(info.counters[i].decode() for i in range(info.counter_count)),
            )
        )
    return tuple(found)


def presets() -> dict[str, str]:
    """Names that stand for codecs with parameters, after the recipes of other systems, and these codecs."""
    found: dict[str, str] = {}
    codec = c_char_p()
    while name := library().ncast_codec_preset(len(found), byref(codec)):
        found[name.decode()] = (codec.value or b"").decode()
    return found


def register_codec(path: str | os.PathLike[str]) -> Codec:
    """Adds a codec of yours to those of this process: a shared library, as `narrowcast/user_codec.h` describes it.

    It can be named wherever a codec can be, except for frames in GPU memory. Calls between GPUs need its CUDA header:
    the file beside the library whose name ends in .cuh instead of .so. All ranks of a communicator must have registered
    the same libraries. Call this before the process creates its first communicator, explanation or cost model.
    NARROWCAST_USER_CODECS registers libraries, separated by colons, when Narrowcast is loaded. `narrowcast codec check`
    tests a codec.

    path: as for `dlopen`: a path with a slash, or the name of a library that the loader finds.

    Raises InvalidArgumentError if the library cannot be loaded or does not describe a valid codec, or if it is too
    late, and UnsupportedError if it was made for another version.
    """
    number = c_uint64()
    check(library().ncast_codec_register(os.fsencode(path), byref(number)))
    codecs.cache_clear()
    return next(one for one in codecs() if one.number == number.value)


def codec_of(codec: str) -> Codec:
    """The codec that the text of a codec, a preset included, names, forced or not.

    Raises ValueError as `comm_codec_number`, and KeyError for "auto" and error budgets, which name none.
    """
    number = comm_codec_number(codec) & 0xFF
    return {one.number: one for one in codecs()}[number]


def is_exact(codec: str) -> bool:
    """Whether the codec of a call allows only codecs that restore all bits."""
    number = comm_codec_number(codec) & 0xFF
    return number == AUTO or (number != WITHIN and codec_of(codec).exact)


@functools.cache
def comm_codec_number(codec: str) -> int:
    """Parses the codec of a call: its text, forced or not, or "auto". Returns an ncast_codec.

    Raises ValueError for an invalid text.
    """
    number = c_uint64()
    check(library().ncast_codec_parse(codec.encode(), byref(number)))
    return number.value


@functools.cache
def codec_number(codec: str) -> int:
    """As `comm_codec_number`, but for frames: neither "auto" nor forced."""
    number = comm_codec_number(codec)
    if number & 0xFF in (AUTO, WITHIN):
        raise ValueError(f"codec is {codec!r}, which only the calls of a communicator accept")
    if codec.endswith("!"):
        raise ValueError(f"codec is {codec!r}, but only the calls of a communicator can force a codec")
    return number


def file_codecs(codec: str) -> tuple[str, ...]:
    """The codecs that a file encoder tries on each frame for `codec`: for "auto", every one that restores all bits,
    except registered ones.

    Raises ValueError as `codec_number`.
    """
    if codec == "auto":
        return tuple(one.name for one in codecs() if one.exact and not one.fixed_payload and not one.registered)
    codec_number(codec)
    return (codec,)


def forced(codec: str) -> str:
    """The codec of a call that uses this codec even if that is slower. "auto" chooses in any case."""
    return codec if codec == "auto" or codec.endswith("!") else f"{codec}!"


def codec_text(number: int) -> str:
    """The canonical text of an ncast_codec."""
    text = create_string_buffer(CODEC_TEXT_BYTES)
    check(library().ncast_codec_format(number, text, CODEC_TEXT_BYTES))
    return text.value.decode()


def split_operation(entry: str) -> tuple[str | None, str]:
    """Splits "OPERATION=CODEC". None as the operation for a codec alone, whose parameters follow a colon."""
    before, equals, codec = entry.partition("=")
    if not equals or ":" in before:
        return None, entry.strip()
    return before.strip(), codec.strip()


def split_codecs(text: str) -> list[str]:
    """The entries of "CODEC,OPERATION=CODEC". Commas also separate a codec's parameters: after a codec with a colon,
    "key=value" belongs to that codec unless the key is an operation."""
    found: list[str] = []
    for part in (one.strip() for one in text.split(",")):
        key = split_operation(part)[0]
        if found and ":" in found[-1] and key is not None and key not in operations():
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return found
