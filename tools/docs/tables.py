"""Turns the tables of codecs and operations (the .def files of include/narrowcast) into Markdown pages.

A row is a call of a macro. Its arguments are separated by commas outside of parentheses and quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

OPERATION_COLUMNS = ("number", "operation", "kind", "rank", "send", "recv", "in place", "bus factor", "packets", "NCCL")
CODEC_COLUMNS = ("id", "codec", "values", "payload", "parameters")
TYPE_COLUMNS = ("codec", "value type", "block bytes", "expected ratio")


def calls(text: str, macro: str) -> Iterator[list[str]]:
    """The arguments of every call of a macro."""
    for found in re.finditer(rf"\b{macro}\(", text):
        arguments, start, depth, quoted, place = [], found.end(), 1, False, found.end()
        while depth:
            character = text[place]
            if character == '"':
                quoted = not quoted
            elif not quoted:
                depth += {"(": 1, ")": -1}.get(character, 0)
                if (character == "," and depth == 1) or depth == 0:
                    arguments.append(" ".join(text[start:place].split()))
                    start = place + 1
            place += 1
        yield arguments


def code(text: str) -> str:
    """The table without comments and directives."""
    return re.sub(r"^\s*(//|#).*$", "", text, flags=re.MULTILINE)


def legend(text: str) -> str:
    """The comment before the table, which explains the columns."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    return "\n".join(lines)


def table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def operations_page(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    rows = []
    for number, _, name, *middle, nccl in calls(code(text), "NCAST_OPERATION"):
        words = [word.lower().replace("_", " ") for word in middle]
        functions = ", ".join(f"`{function}`" for function in nccl.strip('"').split())
        rows.append([number, f"`{name}`", *words, functions])
    return f"# Operations\n\n{table(OPERATION_COLUMNS, rows)}\n```text\n{legend(text)}\n```\n"


def parameter_text(arguments: list[str]) -> str:
    """A parameter of a codec: "`group`, power of two, 32 to 128, default 32", or "`rounding`, `nearest` or ..."."""
    if len(arguments) == 2:
        parameter, choices = arguments
        return f"`{parameter}`, " + " or ".join(f"`{choice}`" for choice in choices.split("|"))
    kind, parameter, least, most, default = arguments
    return f"`{parameter}`, {kind.lower().replace('_', ' ')}, {least} to {most}, default {default}"


def codecs_page(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    codecs, types = [], []
    for number, _, name, _, exactness, payload, parameters, values in calls(code(text), "NCAST_CODEC_ROW"):
        ranges = [parameter_text(one) for one in calls(parameters, "NCAST_CODEC_(?:PARAMETER|CHOICE)")]
        codecs.append([number, f"`{name}`", exactness, payload, "; ".join(ranges) or "none"])
        for dtype, block_bytes, ratio in calls(values, "NCAST_CODEC_TYPE"):
            types.append([f"`{name}`", dtype.lower(), block_bytes, ratio])
    tables = f"{table(CODEC_COLUMNS, codecs)}\n{table(TYPE_COLUMNS, types)}"
    return f"# Codecs\n\n{tables}\n```text\n{legend(text)}\n```\n"
