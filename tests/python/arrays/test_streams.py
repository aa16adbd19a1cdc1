"""Streams of every framework become handles."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from narrowcast._arrays.streams import stream_handle


class Protocol:
    def __init__(self, version=0):
        self._version = version

    def __cuda_stream__(self):
        return (self._version, 99)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (1234, 1234),
        (SimpleNamespace(cuda_stream=0), 0),
        (SimpleNamespace(cuda_stream=55), 55),
        (SimpleNamespace(ptr=66), 66),
        (SimpleNamespace(handle=77), 77),
        (Protocol(), 99),
        (SimpleNamespace(__cuda_stream__=(0, 88)), 88),
    ],
)
def test_a_stream_is_its_handle(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize(
    ("stream", "error"), [("stream", TypeError), (True, TypeError), (-1, ValueError), (Protocol(version=1), ValueError)]
)
def test_objects_other_than_streams_are_rejected(stream, error):
    with pytest.raises(error, match="stream"):
        stream_handle(stream)
