"""The environment in which a command and its children use the drop-in in place of NCCL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .._native.library import library_path
from ..errors import InvalidArgumentError, LibraryNotFoundError, UnsupportedError
from . import nccl_search

NAME = "libnarrowcast_nccl.so"
# Programs that open NCCL themselves, by the path that these name, else by its name.
PATH_VARIABLES = ("VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH")


def drop_in() -> Path:
    """The drop-in, which stands beside the library. LibraryNotFoundError when it was not built."""
    path = library_path().absolute().with_name(NAME)
    if not path.is_file():
        raise LibraryNotFoundError(f"{path} is missing: this build of Narrowcast has no drop-in for NCCL")
    if re.search(r"[\s:]", str(path)):
        raise UnsupportedError(f"LD_PRELOAD cannot name {path}: the path has a space or a colon")
    return path


def real_nccl(environment: Mapping[str, str]) -> Path:
    """The NCCL that the drop-in is to forward to; UnsupportedError that says where it was looked for."""
    found = nccl_search.candidates(environment)
    taken = nccl_search.chosen(found)
    if taken is not None:
        return taken.path
    if environment.get(nccl_search.SETTING):
        raise InvalidArgumentError(f"{nccl_search.SETTING} names {found[0].path}: {found[0].fault}")
    why = "".join(f"; {one.path}: {one.fault}" for one in found)
    raise UnsupportedError(f"no {nccl_search.SONAME} was found (--nccl PATH says where it is){why}")


def environment(base: Mapping[str, str], *, library: Path, nccl: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """`base` with the drop-in `library` preloaded before what is preloaded already, over `nccl`, and the settings."""
    before = [path for path in re.split(r"[\s:]+", base.get("LD_PRELOAD", "")) if path and path != str(library)]
    return {
        **base,
        **settings,
        "LD_PRELOAD": ":".join([str(library), *before]),
        **dict.fromkeys(PATH_VARIABLES, str(library)),
        nccl_search.SETTING: str(nccl),
    }
