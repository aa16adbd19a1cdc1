"""Turns the public C headers into Markdown pages, and finds the functions that have no comment.

A comment belongs to the declarations that follow it up to the next blank line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_IDENTIFIER = re.compile(r"(?<![\w`])((?:ncast|NCAST)_\w+(?:\(\))?)(?![\w`])")
_PARAMETER = re.compile(r"(\w+(?:, \w+)*): ")


@dataclass
class Entry:
    """A comment and the declarations that it describes."""

    comment: list[str]
    declarations: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        return [name for text in self.declarations if (name := _name(text))]


@dataclass
class Header:
    path: Path
    introduction: list[str]
    entries: list[Entry]

    def undocumented(self) -> list[str]:
        """The functions without a comment."""
        return [
            _name(text) or text
            for entry in self.entries
            if not entry.comment
            for text in entry.declarations
            if text.startswith("NCAST_API")
        ]


def _name(declaration: str) -> str | None:
    """The name that is declared; None for a nameless enum."""
    if function := re.search(r"\b(ncast_\w+)\s*\(", declaration) or re.search(r"\(\*(\w+)\)\s*\(", declaration):
        return function[1]
    named = re.search(r"(\w+)\s*;\s*(?://.*)?$", declaration)
    return named[1] if named else None


def parse(path: Path) -> Header:
    introduction: list[str] = []
    entries: list[Entry] = []
    comment: list[str] = []
    declaration: list[str] = []
    begun = after_blank = False
    skipping = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if skipping or (line.startswith("#") and not declaration):
            begun, skipping = True, line.endswith("\\")
            continue
        if not begun:
            introduction.append(line.removeprefix("//").removeprefix(" "))
        elif declaration or (line and not line.startswith(("//", 'extern "C"', "}  // extern"))):
            declaration.append(line)
            text = "\n".join(declaration)
            code = re.sub(r"//.*", "", text)
            if code.count("{") == code.count("}") and code.rstrip().endswith(";"):
                if comment or after_blank or not entries:
                    entries.append(Entry(comment))
                entries[-1].declarations.append(text)
                comment, declaration, after_blank = [], [], False
        elif line.startswith("//"):
            comment.append(line.removeprefix("//").removeprefix(" "))
        else:
            comment, after_blank = [], True
    return Header(path, introduction, entries)


def _prose(lines: list[str]) -> str:
    """A comment as Markdown: indented lines `name: text` become a list."""
    result: list[str] = []
    in_list = False
    for line in lines:
        text = re.sub(r"([*<>])", r"\\\1", line.strip())
        text = _IDENTIFIER.sub(r"`\1`", text)
        indented = line.startswith("  ") and line.strip()
        if indented and (parameter := _PARAMETER.match(text)):
            if not in_list:
                result.append("")
            result.append(f"- `{parameter[1]}`: {text[parameter.end() :]}")
            in_list = True
        elif indented and in_list:
            result.append(f"  {text}")
        else:
            if in_list:
                result.append("")
            result.append(text)
            in_list = False
    return "\n".join(result)


def page(header: Header) -> str:
    title = f"narrowcast/{header.path.name}"
    parts = [f"# {title}", _prose(header.introduction)]
    for entry in header.entries:
        heading = ", ".join(entry.names()) or "Constants"
        code = "\n".join(entry.declarations)
        parts += [f"## {heading}", f"```c\n{code}\n```", _prose(entry.comment)]
    return "\n\n".join(part for part in parts if part) + "\n"
