"""What `with` statements set for the statements inside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

from ..._native.codecs import codec_number
from .sites import PlanError, Site, here, whole


class Loop:
    """A loop: the statements inside one `with loop(...)`."""

    __slots__ = ("site", "unit_bytes")

    def __init__(self, unit_bytes: int, site: Site) -> None:
        self.unit_bytes = unit_bytes
        self.site = site


@dataclass(frozen=True)
class Settings:
    """The settings of a statement."""

    codec: str = "raw"
    group: int | str = 0
    channel: str = ""
    packets: bool = False
    port: bool = False
    loop: Loop | None = None


_DEFAULT = Settings()
_CURRENT: ContextVar[Settings] = ContextVar("settings", default=_DEFAULT)


def current() -> Settings:
    """The settings of the statement that is being executed."""
    return _CURRENT.get()


@contextlib.contextmanager
def _changed(settings: Settings) -> Iterator[None]:
    token = _CURRENT.set(settings)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def codec(name: str) -> contextlib.AbstractContextManager[None]:
    """Encodes the messages and packets of the statements inside: `with codec("window"): ...`.

    Raises PlanError for an unknown codec.
    """
    check_name("codec", name, str)
    try:
        codec_number(name)
    except ValueError as error:
        raise PlanError(str(error)) from None
    return _changed(replace(current(), codec=name))


def group(name: int | str) -> contextlib.AbstractContextManager[None]:
    """Runs the statements inside in another group of thread blocks of their ranks. The default is group 0.

    Groups of a rank run concurrently. A step that needs what a step of another group of the rank did waits for it.
    """
    check_name("group", name, int, str)
    return _changed(replace(current(), group=name))


def channel(name: str) -> contextlib.AbstractContextManager[None]:
    """Uses other channels than outside: one with this name for every pair of ranks that needs one."""
    check_name("channel", name, str)
    return _changed(replace(current(), channel=name))


def packets() -> contextlib.AbstractContextManager[None]:
    """Sends messages as packets, data with a flag: faster when they are short."""
    return _changed(replace(current(), packets=True))


def ports() -> contextlib.AbstractContextManager[None]:
    """Uses port channels for put, get, signal, wait and flush: copy engines move the values."""
    return _changed(replace(current(), port=True))


def loop(unit_bytes: int) -> contextlib.AbstractContextManager[None]:
    """Repeats the statements inside for consecutive parts of their chunks, each of `unit_bytes`.

    Loops cannot be nested.

    Raises PlanError for a size that is not positive, and for a loop in a loop.
    """
    settings = current()
    unit_bytes = whole("unit_bytes", unit_bytes)
    if settings.loop is not None:
        raise PlanError(f"a loop cannot be in another one (that of {settings.loop.site})")
    if unit_bytes <= 0:
        raise PlanError(f"a loop needs a positive number of bytes, not {unit_bytes}")
    return _changed(replace(settings, loop=Loop(unit_bytes, here())))


def check_name(what: str, name: object, *types: type) -> None:
    """Raises PlanError for a name of another type."""
    if not isinstance(name, types):
        raise PlanError(f"the name of a {what} cannot be {name!r}")
