"""The environment that makes a command and its children use the drop-in instead of NCCL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .._native.library import library_path
from ..errors import InvalidArgumentError, LibraryNotFoundError, UnsupportedError
from . import nccl_search

NAME = "libnarrowcast_nccl.so"
# Variables of programs that load NCCL themselves, with the path of NCCL.
PATH_VARIABLES = ("VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH")


def built_drop_in() -> Path:
    """The path of the drop-in, in the folder of the library. Raises LibraryNotFoundError if it was not built."""
    path = library_path().absolute().with_name(NAME)
    if not path.is_file():
        raise LibraryNotFoundError(f"{path} is missing: this build of Narrowcast has no drop-in for NCCL")
    return path


def drop_in() -> Path:
    """The same, for LD_PRELOAD. Raises UnsupportedError if that cannot name it."""
    path = built_drop_in()
    if re.search(r"[\s:]", str(path)):
        raise UnsupportedError(f"LD_PRELOAD cannot name {path}: the path has a space or a colon")
    return path


def real_nccl(environment: Mapping[str, str], named_by: str = nccl_search.SETTING) -> Path:
    """The NCCL to which the drop-in forwards calls.

    named_by: the variable or option that has set the path, for the message of InvalidArgumentError.
    Raises UnsupportedError, with the candidates, if there is none.
    """
    found = nccl_search.candidates(environment)
    taken = nccl_search.chosen(found)
    if taken is not None:
        return taken.path
    if environment.get(nccl_search.SETTING):
        raise InvalidArgumentError(f"{named_by} names {found[0].path}: {found[0].fault}")
    why = "".join(f"; {one.path}: {one.fault}" for one in found)
    raise UnsupportedError(f"no {nccl_search.SONAME} was found (--nccl PATH sets its path){why}")


def environment(base: Mapping[str, str], *, library: Path, nccl: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """`base` with the settings, and with the drop-in `library`, which forwards to `nccl`, preloaded first."""
    before = [path for path in re.split(r"[\s:]+", base.get("LD_PRELOAD", "")) if path and path != str(library)]
    return {
        **base,
        **settings,
        "LD_PRELOAD": ":".join([str(library), *before]),
        **dict.fromkeys(PATH_VARIABLES, str(library)),
        nccl_search.SETTING: str(nccl),
    }
