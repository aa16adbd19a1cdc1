"""The settings: every environment variable that the library, the drop-in or this package reads."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

PREFIX = "NARROWCAST_"
# Of the project's own tests.
_TEST_PREFIX = f"{PREFIX}TEST_"

# Without the prefix; docs/guide/settings.md says what each does.
_IN_FILES_TOO = (
    "ATTACH",
    "CODEC",
    "COST_MODEL",
    "DEBUG",
    "MAX_CTAS",
    "NCCL_LIBRARY",
    "NVTX",
    "OFF",
    "P2P",
    "SCRATCH_BYTES",
    "STATS",
    "STATS_SECONDS",
    "TAKE",
    "VERIFY",
)
_ALONE = ("CONFIG", "LIBRARY", "PATH", "SOCKET_IFNAME", "TRACEBACK")
VARIABLES = frozenset(f"{PREFIX}{name}" for name in (*_IN_FILES_TOO, *_ALONE))
# What the file that NARROWCAST_CONFIG names may have besides rules.
KEYS = frozenset(name.lower() for name in _IN_FILES_TOO)

# Of fixed sets of values, those that `narrowcast run` has options for.
TAKES = ("auto", "always", "never")
ATTACHES = ("first", "init")
DEBUG_LEVELS = ("NONE", "VERSION", "WARN", "INFO", "TRACE")


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one was meant to be, when one is close."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else None


def unknown(environment: Mapping[str, str]) -> list[str]:
    """The variables of the prefix that nobody reads."""
    return sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in VARIABLES and not name.startswith(_TEST_PREFIX)
    )


def unknown_sentence(name: str) -> str:
    """What to say of such a variable."""
    meant = near(name, VARIABLES)
    rest = f"did you mean {meant}?" if meant else f"known: {', '.join(sorted(VARIABLES))}"
    return f"the environment variable {name} is not known to Narrowcast ({rest})"


def toml(path: Path) -> dict[str, Any] | None:
    """What a file of settings holds; None where this Python cannot tell. OSError, ValueError: it is none."""
    text = path.read_text(encoding="utf-8")
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    return None


@contextlib.contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """This process's environment with other values for a while."""
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
