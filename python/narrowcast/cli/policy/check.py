"""`policy check`: the errors of a settings file, and the calls that each of its rules takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..._dropin import policy
from ..._files.display import bytes_text
from ..._native.operations import operations
from ...types import REDUCTIONS, VALUE_TYPES
from .._common import existing_file, print_error, print_json
from .._tables import Column, Table, print_wrapped


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="A settings file (NARROWCAST_CONFIG).")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Show which calls each rule of a settings file takes, which codecs change values, and what is wrong.

    The first rule that matches a call decides. The exit status is 1 if the file has an error, or a rule that never
    applies because others take all of its calls.
    """
    found = policy.check(existing_file(file))
    if json:
        print_json(found)
    else:
        _print(found)
    for fault in found["faults"]:
        print_error(fault)
    unreachable = [rule for rule in found["rules"] if rule["covered_by"]]
    for rule in unreachable:
        print_error(f"{file}:{rule['line']}: {rule['name']} never applies: all of its calls {_taken(rule)}")
    if found["faults"] or unreachable:
        raise typer.Exit(1)


def _print(found: dict[str, Any]) -> None:
    table = Table(
        Column("rule", folds=True),
        Column("takes", folds=True),
        Column("codec", folds=True),
        Column("executed", rank=1),
        Column("values"),
        title="Rules in the order in which they are tried",
    )
    for rule in found["rules"]:
        table.add_row(
            rule["name"],
            "; ".join(_conditions(rule)) if not rule["covered_by"] else "nothing",
            _codecs(rule),
            rule["take"] or "of the file",
            "changed" if rule["lossy"] else "exact" if rule["codec"] else "-",
        )
    table.print()
    lossy = [f"{one['codec']} for {one['operation']}" for one in found["codec"] if one["lossy"]]
    if lossy:
        print_wrapped(f"Calls that no rule takes: values are changed by {', '.join(lossy)}.")
    elif any(rule["lossy"] for rule in found["rules"]):
        print_wrapped("Calls that no rule takes deliver exact values.")
    else:
        print_wrapped("All calls deliver exact values.")


def _codecs(rule: dict[str, Any]) -> str:
    codec = rule["codec"] or "of the file"
    return f"{codec}, results {rule['result_codec']}" if rule["result_codec"] else codec


def _conditions(rule: dict[str, Any]) -> list[str]:
    kinds = [kind.name for kind in VALUE_TYPES]
    parts = [_some(rule["operations"], [*operations()], "operations")]
    if rule["reductions"]:
        parts.append(f"reductions by {_some(rule['reductions'], list(REDUCTIONS), 'operators')}")
    parts.append(_some(rule["dtypes"], kinds, "types"))
    if rule["min_bytes"]:
        parts.append(f"from {bytes_text(rule['min_bytes'])}")
    if rule["max_bytes"] is not None:
        parts.append(f"up to {bytes_text(rule['max_bytes'])}")
    if rule["ranks"] is not None:
        parts.append(f"{rule['ranks']} ranks")
    if rule["communicator"] is not None:
        parts.append(f"communicator {rule['communicator']}")
    return parts


def _some(names: list[str], all_names: list[str], plural: str) -> str:
    """The names, in fewer words if they are most of all names."""
    missing = [name for name in all_names if name not in names]
    if not missing:
        return f"all {plural}"
    if len(missing) < 3 < len(names):
        return f"all {plural} except {', '.join(missing)}"
    return ", ".join(names)


def _taken(rule: dict[str, Any]) -> str:
    rules = [name for name in rule["covered_by"] if name != "off"]
    reasons = [f"are taken by {', '.join(rules)}"] if rules else []
    return " or ".join(reasons + ["are switched off"] * ("off" in rule["covered_by"]))
