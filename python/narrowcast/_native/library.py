"""Loads libnarrowcast.so and converts its errors to exceptions.

ctypes releases the GIL during calls, and needs no Python headers to build.
"""

from __future__ import annotations

import functools
import os
import warnings
from ctypes import CDLL
from pathlib import Path

from ..errors import LibraryNotFoundError, Status, UnsupportedError, error_of
from . import interrupts, settings
from .signatures import SIGNATURES

# The SONAME. In a wheel, libnarrowcast.so is a linker script.
PACKAGED = Path(__file__).parents[1] / "lib" / "libnarrowcast.so.0"


def library_path() -> Path:
    """The path of the library: NARROWCAST_LIBRARY, or the one in the package. Raises LibraryNotFoundError."""
    named = os.environ.get("NARROWCAST_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise LibraryNotFoundError(f"NARROWCAST_LIBRARY names {named}, which is not a file")
        return Path(named)
    if not PACKAGED.is_file():
        raise LibraryNotFoundError(
            f"{PACKAGED} does not exist: install the package, or set NARROWCAST_LIBRARY to a built library"
        )
    return PACKAGED


def warn_of_unknown_variables() -> None:
    """Warns about unknown variables with the prefix, such as misspelt settings."""
    for name in settings.unknown(os.environ):
        warnings.warn(settings.unknown_message(name), stacklevel=3)


def library() -> CDLL:
    """The library, with all functions declared. Loaded at first use. Raises LibraryNotFoundError."""
    global _registered, _watched
    loaded = _loaded()
    if not _registered:
        _register_user_codecs(loaded)
        _registered = True
    if not _watched:
        set_check = loaded.ncast_set_interrupt_check
        _watched = isinstance(set_check, _Missing) or interrupts.watch(set_check)
    return loaded


_registered = False  # whether the codecs of NARROWCAST_USER_CODECS are
_watched = False  # whether waits of the main thread run signal handlers


@functools.cache
def _loaded() -> CDLL:
    warn_of_unknown_variables()
    path = library_path()
    try:
        loaded = CDLL(str(path))
    except OSError as error:
        raise LibraryNotFoundError(f"{path} cannot be loaded: {error}") from None
    missing = []
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(loaded, name, None)
        if function is None:
            missing.append(name)
            continue
        function.restype = result
        function.argtypes = arguments
    if "ncast_version" in missing:
        raise LibraryNotFoundError(f"{path} is not a Narrowcast library: it has no ncast_version")
    for name in missing:
        setattr(loaded, name, _Missing(name, path))
    return loaded


def _register_user_codecs(loaded: CDLL) -> None:
    """Registers the libraries that NARROWCAST_USER_CODECS names. Raises the errors of `register_codec`."""
    variable = f"{settings.PREFIX}USER_CODECS"
    for path in filter(None, os.environ.get(variable, "").split(os.pathsep)):
        if status := loaded.ncast_codec_register(os.fsencode(path), None):
            message = bytes(loaded.ncast_last_error()).decode("utf-8", "replace")
            raise error_of(status, f"{variable}: {message.partition(': ')[2]}")


class _Missing:
    """Replaces a function that a partial build of the library lacks."""

    def __init__(self, name: str, path: Path) -> None:
        self._message = f"{path} was built without {name}"

    def __call__(self, *_: object) -> int:
        raise error_of(Status.UNSUPPORTED, self._message)


def last_error() -> str:
    """The message of the last error on this thread."""
    return bytes(library().ncast_last_error()).decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises the exception for a status other than OK, or that of a signal handler that ended the call."""
    if status != Status.OK:
        interrupts.raise_interruption()
        name = bytes(library().ncast_status_name(status)).decode()
        raise error_of(status, last_error() or name)


def gpu_count() -> int:
    """GPUs that CUDA can use; 0 on a machine without a driver, and if the library was built without CUDA."""
    try:
        return int(library().ncast_cuda_device_count())
    except UnsupportedError:
        return 0


def architectures() -> str:
    """The GPU architectures that the library contains code for, such as `80-real,90`; empty if built without CUDA."""
    return bytes(library().ncast_cuda_architectures()).decode()


def library_version() -> str:
    """The version of the loaded library: `major.minor.patch`."""
    return bytes(library().ncast_version()).decode()
