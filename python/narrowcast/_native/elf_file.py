"""Reads ELF files: interpreter, needed libraries, search paths, symbols."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_SHT_DYNSYM, _SHN_UNDEF, _SYMBOL_BYTES = 11, 0, 24
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29


@dataclass(frozen=True)
class Elf:
    """The dynamic section of a 64-bit little-endian ELF file."""

    interpreter: str | None
    """The path of the loader; None for libraries and statically linked programs."""
    needed: tuple[str, ...]
    soname: str | None
    rpath: str | None
    """Search path before LD_LIBRARY_PATH."""
    runpath: str | None
    """Search path after LD_LIBRARY_PATH."""


def read(path: Path) -> Elf | None:
    """Reads a file; None if it is not such an ELF file. Raises OSError if it cannot be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _parse(content) if content[:6] == _MAGIC_64_BIT_LITTLE_ENDIAN else None
    except (ValueError, OverflowError, struct.error):
        # Empty, truncated or corrupt.
        return None


def symbols(path: Path, prefix: str) -> tuple[set[str], set[str]]:
    """The defined and the undefined symbols with a prefix."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _symbols(content, prefix) if content[:6] == _MAGIC_64_BIT_LITTLE_ENDIAN else (set(), set())
    except (ValueError, OverflowError, struct.error):
        return set(), set()


def _symbols(content: mmap.mmap, prefix: str) -> tuple[set[str], set[str]]:
    (table,) = struct.unpack_from("<Q", content, 40)
    entry_bytes, entries = struct.unpack_from("<HH", content, 58)
    # Type, offset, bytes and linked section.
    sections = [struct.unpack_from("<4xI16xQQI", content, table + index * entry_bytes) for index in range(entries)]
    given: set[str] = set()
    taken: set[str] = set()
    for kind, offset, size, link in sections:
        if kind != _SHT_DYNSYM:
            continue
        strings = sections[link][1]
        for at in range(offset, offset + size, _SYMBOL_BYTES):
            name, where = struct.unpack_from("<IxxH", content, at)
            start = strings + name
            if content[start : start + len(prefix)] == prefix.encode():
                (taken if where == _SHN_UNDEF else given).add(_string(content, start))
    return given, taken


def _parse(content: mmap.mmap) -> Elf:
    (table,) = struct.unpack_from("<Q", content, 32)
    entry_bytes, entries = struct.unpack_from("<HH", content, 54)
    segments = []
    for index in range(entries):
        at = table + index * entry_bytes
        kind, _, offset, address, _, file_bytes = struct.unpack_from("<IIQQQQ", content, at)
        segments.append((kind, offset, address, file_bytes))
    interpreter = None
    for kind, offset, _, size in segments:
        if kind == _PT_INTERP:
            interpreter = content[offset : offset + size].rstrip(b"\0").decode()
    tags: list[tuple[int, int]] = []
    for kind, offset, _, size in segments:
        if kind == _PT_DYNAMIC:
            tags = list(struct.iter_unpack("<qQ", content[offset : offset + size]))
    if (_DT_NULL, 0) in tags:
        tags = tags[: tags.index((_DT_NULL, 0))]
    values = dict(tags)
    strings = _offset_of(values.get(_DT_STRTAB, 0), segments)

    def text(tag: int) -> str | None:
        return _string(content, strings + values[tag]) if tag in values else None

    needed = tuple(_string(content, strings + value) for tag, value in tags if tag == _DT_NEEDED)
    return Elf(interpreter, needed, text(_DT_SONAME), text(_DT_RPATH), text(_DT_RUNPATH))


def _offset_of(address: int, segments: list[tuple[int, int, int, int]]) -> int:
    for kind, offset, start, size in segments:
        if kind == _PT_LOAD and start <= address < start + size:
            return offset + address - start
    return 0


def _string(content: mmap.mmap, offset: int) -> str:
    return content[offset : content.find(b"\0", offset)].decode()
