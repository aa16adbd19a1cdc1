"""Frames that are copied from a GPU, on simulated streams, one of which runs as early as events allow."""

from __future__ import annotations

import narrowcast
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from narrowcast._torch.frame_writer import FrameWriter  # noqa: E402
from narrowcast.types import value_type  # noqa: E402
from simulated_streams import simulate  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("eager", ["copies", "encoding"])
def test_frames_are_copied_after_they_are_encoded(monkeypatch, eager):
    streams = simulate(monkeypatch)
    streams.main_is_late = eager == "copies"
    torch.manual_seed(0)
    writer, parts = FrameWriter(CPU), [torch.randn(5, 3000).bfloat16() for _ in range(4)]
    encoded, copied = [], []
    for rows in [*parts, None]:
        if rows is not None:
            encoded.append(writer.encode(rows.view(torch.uint8), value_type("bfloat16"), "window"))
        if len(encoded) == 2 or rows is None:
            oldest = encoded.pop(0)
            copied.append([torch.empty(size, dtype=torch.uint8) for size in oldest.sizes()])
            writer.copy(oldest, copied[-1])
    writer.synchronize()
    for rows, frames in zip(parts, copied, strict=True):
        for row, frame in zip(rows, frames, strict=True):
            assert torch.equal(torch.from_numpy(narrowcast.decode(frame)).view(torch.bfloat16), row)


def test_a_row_that_cannot_be_encoded_is_an_error(monkeypatch):
    streams = simulate(monkeypatch)
    writer = FrameWriter(CPU)
    encoded = writer.encode(torch.zeros(3, 64, dtype=torch.uint8), value_type("uint8"), "window")
    streams.run()
    encoded._sizes[1] = 0
    with pytest.raises(RuntimeError, match="row 1"):
        encoded.sizes()
