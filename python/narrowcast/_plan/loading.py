"""Plans from files: documents in any of the formats, and Python programs."""

from __future__ import annotations

import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._native.numbers import as_positive
from ..errors import InvalidArgumentError, NarrowcastError
from . import formats
from .dsl.sites import PlanError, Site
from .plan import Plan

#: The ending of programs. Documents are recognised by their content.
PROGRAM = ".py"
#: The name in a program that is its plan, or a function that returns it.
ENTRY = "plan"


def load(path: str | os.PathLike[str], *, ranks: int | None = None, depth: int | None = None) -> Plan:
    """Reads a plan from a file.

    path: a plan in the JSON form, in the XML of MSCCL or in the JSON of MSCCL++; its content shows which. A file that
    ends in .py is a program: it is run, and what it calls `plan` is the plan, or a function that returns it.
    ranks: passed to that function as its argument `ranks`. Documents have a fixed number of ranks.
    depth: how many messages are in flight on a connection of MSCCL. None: as its protocol has it.

    Raises InvalidArgumentError with the place of a fault, UnsupportedError for valid documents that are not plans of
    operations of the library, PlanError for faults of a program, and OSError.
    """
    path = Path(path)
    if path.suffix == PROGRAM:
        _check_no_depth(str(path), depth)
        return _run(path, None if ranks is None else as_positive(ranks, "ranks"))
    return read(path.read_bytes(), str(path), ranks=ranks, depth=depth)


def read(data: bytes, name: str, *, ranks: int | None = None, depth: int | None = None) -> Plan:
    """As load, of a document that has been read; `name` is for errors."""
    model = formats.read(data, name, None if depth is None else as_positive(depth, "depth"))
    if ranks is not None and as_positive(ranks, "ranks") != len(model.ranks):
        raise InvalidArgumentError(f"{name}: the plan is for {len(model.ranks)} ranks, not {ranks}")
    form = formats.recognize(data)
    if form != "msccl_xml":
        _check_no_depth(name, depth)
    if form != "msccl_xml":
        return Plan(model)
    # The steps come from lines of the document.
    return Plan(model, lambda origin: Site(name, origin) if origin else None)


def _check_no_depth(name: str, depth: int | None) -> None:
    if depth is not None:
        raise InvalidArgumentError(f"{name}: depth is only for plans in the XML of MSCCL: others state theirs")


def _run(path: Path, ranks: int | None) -> Plan:
    name = str(path)
    path.read_bytes()  # raises OSError
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        found = runpy.run_path(name).get(ENTRY)
        if found is None:
            raise InvalidArgumentError(
                f"{name}: '{ENTRY}' is not defined: a plan, or a function of the ranks that returns one"
            )
        if callable(found):
            arguments = {} if ranks is None else {"ranks": ranks}
            _check_arguments(name, found, arguments)
            found = found(**arguments)
            if not isinstance(found, Plan):
                raise InvalidArgumentError(f"{name}: {ENTRY}() must return a plan, not {_type_name(found)}")
            ranks = None
    except NarrowcastError:
        raise
    except (Exception, SystemExit) as error:
        raise _failure(name, error) from error
    finally:
        sys.path.remove(str(path.parent.absolute()))
    return _checked(name, found, ranks)


def _checked(name: str, found: Any, ranks: int | None) -> Plan:
    if not isinstance(found, Plan):
        raise InvalidArgumentError(f"{name}: '{ENTRY}' must be a plan or a function, not {_type_name(found)}")
    if ranks is not None and ranks != len(found.model.ranks):
        raise InvalidArgumentError(f"{name}: the plan is for {len(found.model.ranks)} ranks, not {ranks}")
    return found


def _check_arguments(name: str, function: Callable[..., Any], arguments: dict[str, int]) -> None:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        hint = "" if arguments else " (--ranks gives the argument `ranks`)"
        raise InvalidArgumentError(f"{name}: {ENTRY}() {error}{hint}") from None


def _type_name(found: Any) -> str:
    return "None" if found is None else type(found).__name__


def _failure(name: str, error: BaseException) -> InvalidArgumentError:
    """The error of a program, located at the innermost of its lines in the traceback."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename is not None:
        return PlanError(f"{type(error).__name__}: {error.msg}", Site(error.filename, error.lineno or 0))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    if lines:
        return PlanError(what, Site(name, lines[-1] or 0))
    return InvalidArgumentError(f"{name}: {what}")
