"""Describes the C ABI as text and judges changes to it.

    python tools/abi.py check                  # compare abi/libnarrowcast.abi with the headers: part of `make lint`
    python tools/abi.py check --library PATH   # also compare it with the symbols that a built library exports
    python tools/abi.py update                 # write abi/libnarrowcast.abi and list the changes: `make abi`

The description has every function, type, enumerator and constant of include/narrowcast/*.h. Sizes, offsets and values
come from the C compiler. It needs no CUDA and takes about a second.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pycparser import c_ast, c_generator, c_parser

ROOT = Path(__file__).parent.parent
DESCRIPTION = "abi/libnarrowcast.abi"
# The first field of a struct that may grow: callers put the size that they were compiled with.
SIZE_FIELD = ("size_t", "struct_bytes")
HEAD = """\
# The C ABI of libnarrowcast.so on 64-bit Linux, for review: `make abi` writes this file from include/narrowcast/*.h.
# A field is described by its offset, its size, its type and its name.
"""

# The types that the public headers use from standard headers.
STANDARD_TYPES = "typedef unsigned long size_t;" + "".join(
    f"typedef {sign}int {name}{bits}_t;"
    for sign, name in (("", "int"), ("unsigned ", "uint"))
    for bits in (8, 16, 32, 64)
)


@dataclass
class Item:
    """One line of the description, and the indented lines below it."""

    kind: str  # function, typedef, enum, struct or constant
    name: str
    text: str  # what follows the name
    members: list[tuple[str, str]] = field(default_factory=list)  # name and the rest, in the order of the header


@dataclass
class Change:
    compatible: bool
    what: str


# --- from headers -----------------------------------------------------------------------------------------------------


def compiler(*arguments: str | Path, text: str = "") -> str:
    command = [os.environ.get("CC", "cc"), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"abi: {' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def include_all(root: Path) -> str:
    headers = sorted((root / "include" / "narrowcast").glob("*.h"))
    return "".join(f'#include "narrowcast/{header.name}"\n' for header in headers)


def preprocess(root: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stddef.h").write_text(STANDARD_TYPES, encoding="utf-8")
        (Path(folder) / "stdint.h").write_text("", encoding="utf-8")
        flags = ["-E", "-P", "-x", "c", "-std=c99", "-nostdinc", "-D__attribute__(x)=", "-I", folder]
        return compiler(*flags, "-I", root / "include", "-", text=include_all(root))


def constants_of_macros(root: Path) -> list[str]:
    text = compiler("-E", "-dM", "-x", "c", "-I", root / "include", "-", text=include_all(root))
    return sorted(name for name, value in re.findall(r"^#define (NCAST_\w+) +(.+)$", text, re.M) if "__" not in value)


class Header(c_ast.NodeVisitor):  # type: ignore[misc]
    """Collects the declarations of the headers. Numbers are C expressions, which `evaluate` computes."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.generator = c_generator.CGenerator()

    def render(self, node: Any) -> str:
        """A type without the names of parameters: those are not part of the ABI."""
        node = copy.deepcopy(node)
        Unnamed().visit(node)
        text: str = self.generator.visit(c_ast.Typename(None, [], None, node))
        return " ".join(text.split())

    def add_type(self, name: str, node: Any) -> None:
        inner = node.type if isinstance(node, c_ast.TypeDecl) else node
        if isinstance(inner, c_ast.Enum) and inner.values is not None:
            members = [(one.name, f"@{one.name}@") for one in inner.values.enumerators]
            self.items.append(Item("enum", name, f"@sizeof({name})@ bytes", members))
        elif isinstance(inner, c_ast.Struct | c_ast.Union):
            kind = "struct" if isinstance(inner, c_ast.Struct) else "union"
            if inner.decls is None:
                self.items.append(Item(kind, name, "opaque"))
            else:
                members = list(self.fields(name, inner.decls))
                self.items.append(Item(kind, name, f"@sizeof({name})@ bytes", members))
        else:
            self.items.append(Item("typedef", name, self.render(node)))

    def fields(self, owner: str, decls: list[Any]) -> Iterator[tuple[str, str]]:
        for decl in decls:
            if decl.bitsize is not None:
                raise SystemExit(f"abi: {owner}.{decl.name} is a bit field, whose place C leaves open")
            if decl.name is None:
                yield from self.fields(owner, decl.type.decls)
                continue
            place = f"@offsetof({owner}, {decl.name})@ @sizeof((({owner}*)0)->{decl.name})@"
            yield decl.name, f"{place} {self.render(decl.type)}"

    def visit_FuncDef(self, node: Any) -> None:
        """An inline function is part of the program and not of the ABI."""

    def visit_Typedef(self, node: Any) -> None:
        if node.name.startswith("ncast_"):
            self.add_type(node.name, node.type)

    def visit_Decl(self, node: Any) -> None:
        if isinstance(node.type, c_ast.FuncDecl):
            self.items.append(Item("function", node.name, self.render(node.type)))
        elif isinstance(node.type, c_ast.Enum) and node.type.values is not None:
            self.items.extend(Item("constant", one.name, f"@{one.name}@") for one in node.type.values.enumerators)
        elif isinstance(node.type, c_ast.Struct | c_ast.Union) and node.type.decls is not None:
            raise SystemExit(f"abi: struct {node.type.name}: public structs are declared with typedef")


class Unnamed(c_ast.NodeVisitor):  # type: ignore[misc]
    """Removes the names that a type declares, those of parameters included."""

    def visit_TypeDecl(self, node: Any) -> None:
        node.declname = None
        self.generic_visit(node)

    def visit_ParamList(self, node: Any) -> None:
        for parameter in node.params:
            if isinstance(parameter, c_ast.Decl):
                parameter.name = None
        self.generic_visit(node)


def evaluate(root: Path, text: str) -> str:
    """Replaces each @expression@ by its value, as the compiler computes it."""
    expressions = sorted(set(re.findall(r"@([^@]+)@", text)))
    lines = "".join(f'  printf("%lld\\n", (long long)({one}));\n' for one in expressions)
    program = f"#include <stddef.h>\n#include <stdio.h>\n{include_all(root)}int main(void) {{\n{lines}  return 0;\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values"
        compiler("-x", "c", "-std=c99", "-I", root / "include", "-o", path, "-", text=program)
        printed = subprocess.run([path], capture_output=True, text=True, check=True).stdout.split()
    values = dict(zip(expressions, printed, strict=True))
    return re.sub(r"@([^@]+)@", lambda match: values[match[1]], text)


def describe(root: Path) -> str:
    """The text of abi/libnarrowcast.abi for the headers in `root`."""
    header = Header()
    header.visit(c_parser.CParser().parse(preprocess(root)))
    macros = [Item("constant", name, f"@{name}@") for name in constants_of_macros(root)]
    return HEAD + evaluate(root, write(header.items + macros))


# --- the text ---------------------------------------------------------------------------------------------------------


def write(items: list[Item]) -> str:
    lines = []
    for kind in ("constant", "typedef", "enum", "struct", "union", "function"):
        lines.append("")
        for item in sorted((one for one in items if one.kind == kind), key=lambda one: one.name):
            lines.append(f"{kind} {item.name}: {item.text}")
            lines.extend(f"  {name}: {rest}" for name, rest in item.members)
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[tuple[str, str], Item]:
    items: dict[tuple[str, str], Item] = {}
    item = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if (member := re.fullmatch(r"  (\w+): (.+)", line)) and item is not None:
            item.members.append((member[1], member[2]))
        elif top := re.fullmatch(r"(\w+) (\w+): (.+)", line):
            item = Item(top[1], top[2], top[3])
            items[item.kind, item.name] = item
        else:
            raise SystemExit(f"abi: line {number} of the description is not understood: {line}")
    return items


# --- changes ----------------------------------------------------------------------------------------------------------


def is_sized(item: Item) -> bool:
    if not item.members:
        return False
    name, rest = item.members[0]
    return (rest.split(" ", 2)[2], name) == SIZE_FIELD and rest.startswith("0 ")


def compare_enums(old: Item, new: Item) -> Iterator[Change]:
    before, after = dict(old.members), dict(new.members)
    for name, value in before.items():
        if name not in after:
            yield Change(False, f"enum {old.name}: {name} is removed")
        elif after[name] != value:
            yield Change(False, f"enum {old.name}: {name} was {value} and is {after[name]}")
    for name, value in after.items():
        if name not in before:
            yield Change(value not in before.values(), f"enum {old.name}: {name} = {value} is added")
    if old.text != new.text:
        yield Change(False, f"enum {old.name}: was {old.text} and is {new.text}")


def compare_structs(old: Item, new: Item) -> Iterator[Change]:
    what = f"{old.kind} {old.name}"
    before, after = dict(old.members), dict(new.members)
    renamed: dict[str, str] = {}
    for name, place in before.items():
        same_place = [other for other in after if after[other] == place and other not in before]
        if name not in after and len(same_place) == 1:
            renamed[same_place[0]] = name
            yield Change(False, f"{what}: {name} is renamed to {same_place[0]}, in the same place: sources must change")
        elif name not in after:
            yield Change(False, f"{what}: {name} is removed")
        elif after[name] != place:
            yield Change(False, f"{what}: {name} was '{place}' and is '{after[name]}' (offset, bytes, type)")
    old_bytes = int(old.text.split()[0]) if old.members else 0
    for name, place in after.items():
        if name in before or name in renamed:
            continue
        if not is_sized(old):
            yield Change(False, f"{what}: {name} is added, and {old.name} does not start with its size")
        elif int(place.split()[0]) < old_bytes:
            yield Change(False, f"{what}: {name} is added inside the {old_bytes} bytes that older programs have")
        else:
            yield Change(True, f"{what}: {name} is added at its end")
    if old.text != new.text and {renamed.get(name, name) for name in after} == set(before):
        yield Change(False, f"{what}: was {old.text} and is {new.text}")


def compare(old_text: str, new_text: str) -> list[Change]:
    """The changes between two descriptions."""
    old_items, new_items = read(old_text), read(new_text)
    changes = []
    for key, old in old_items.items():
        new = new_items.get(key)
        if new is None:
            changes.append(Change(False, f"{old.kind} {old.name} is removed"))
        elif old.kind == "enum":
            changes.extend(compare_enums(old, new))
        elif old.kind in ("struct", "union"):
            changes.extend(compare_structs(old, new))
        elif old.text != new.text:
            changes.append(Change(False, f"{old.kind} {old.name}: was '{old.text}' and is '{new.text}'"))
    changes.extend(Change(True, f"{kind} {name} is added") for kind, name in new_items if (kind, name) not in old_items)
    return changes


def report(changes: list[Change]) -> str:
    lines = [f"  {'compatible' if one.compatible else 'INCOMPATIBLE'}: {one.what}" for one in changes]
    if any(not one.compatible for one in changes):
        lines.append("  If the last release has it, programs must be built again: raise the version in CMakeLists.txt.")
    return "\n".join(lines or ["  compatible: the order or the wording of the description"])


def exported_functions(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def check_exports(text: str, library: Path) -> list[str]:
    listed = exported_functions(library)
    declared = {name for kind, name in read(text) if kind == "function"}
    problems = [f"{library} does not export {name}, which the headers declare" for name in sorted(declared - listed)]
    return problems + [f"{library} exports {name}, which no header declares" for name in sorted(listed - declared)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["check", "update"])
    parser.add_argument("--library", type=Path, help="a built library, whose exports are compared as well")
    parser.add_argument("--root", type=Path, default=ROOT)
    arguments = parser.parse_args()
    path = arguments.root / DESCRIPTION
    old = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    new = describe(arguments.root)
    problems = check_exports(new, arguments.library) if arguments.library else []
    for problem in problems:
        print(problem, file=sys.stderr)
    if arguments.action == "update":
        path.parent.mkdir(exist_ok=True)
        path.write_text(new, encoding="utf-8")
        print(f"abi: {DESCRIPTION} " + ("is unchanged" if old == new else f"is updated:\n{report(compare(old, new))}"))
    elif old != new:
        print(f"abi: the headers differ from {DESCRIPTION}:\n{report(compare(old, new))}", file=sys.stderr)
        print("  If the change is intended, run `make abi` and commit the file with it.", file=sys.stderr)
        return 1
    else:
        print("abi: as described")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
