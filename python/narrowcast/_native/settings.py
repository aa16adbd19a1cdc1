"""All environment variables that the library, the drop-in or this package reads."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import paths

PREFIX = "NARROWCAST_"
# Variables of the tests.
_TEST_PREFIX = f"{PREFIX}TEST_"

# Without the prefix. docs/guide/settings.md describes them.
_FILE_SETTINGS = (
    "ATTACH",
    "CALIBRATE",
    "CODEC",
    "COST_MODEL",
    "DEBUG",
    "MAX_CTAS",
    "NCCL_LIBRARY",
    "NVTX",
    "OFF",
    "P2P",
    "PLANS",
    "RECORD",
    "SCRATCH_BYTES",
    "STATS",
    "STATS_SECONDS",
    "TAKE",
    "VERIFY",
)
_ENVIRONMENT_ONLY = (
    "CONFIG",
    "HOSTID",
    "LEVELS",
    "LIBRARY",
    "NET",
    "NVRTC",
    "PARTIAL_SUMS",
    "PATH",
    "PLAN_CACHE",
    "SHARED_KIB",
    "SOCKET_IFNAME",
    "TRACEBACK",
    "UCX",
    "USER_CODECS",
)
VARIABLES = frozenset(f"{PREFIX}{name}" for name in (*_FILE_SETTINGS, *_ENVIRONMENT_ONLY))
# The keys, besides rules and plans, of the file that NARROWCAST_CONFIG names.
KEYS = frozenset(name.lower() for name in _FILE_SETTINGS)

_MAX_TOML_BYTES = 1 << 20

# The values of settings that are options of `narrowcast run`.
TAKES = ("auto", "always", "never")
ATTACHES = ("first", "init")
NETWORKS = ("tcp", "plugin", "ucx", "auto")
DEBUG_LEVELS = ("NONE", "VERSION", "WARN", "INFO", "TRACE")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to a misspelt one; None if none is close."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else None


def unknown(environment: Mapping[str, str]) -> list[str]:
    """The unknown variables with the prefix."""
    return sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in VARIABLES and not name.startswith(_TEST_PREFIX)
    )


def unknown_message(name: str) -> str:
    """The message about an unknown variable."""
    meant = closest(name, VARIABLES)
    rest = f"did you mean {meant}?" if meant else f"known: {', '.join(sorted(VARIABLES))}"
    shown = name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
    return f"the environment variable {shown} is not known to Narrowcast ({rest})"


def toml(path: Path) -> dict[str, Any] | None:
    """The content of a TOML file; None if this Python cannot parse TOML. Raises OSError or ValueError."""
    text = paths.read_regular(path, _MAX_TOML_BYTES).decode()
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    return None


@contextlib.contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """Sets environment variables of this process during the body."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
