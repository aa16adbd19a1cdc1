"""Plots of ratios stay readable for models with many tensors."""

from __future__ import annotations

import struct

import pytest
from narrowcast import plots
from narrowcast.ratios import TensorRatio


def row(tensor: str, raw_bytes: int, ratio: float, entropy: float, codec: str = "window") -> TensorRatio:
    wire_bytes = round(ratio * raw_bytes)
    return TensorRatio(
        tensor, "model", "bfloat16", raw_bytes // 2, codec, raw_bytes, wire_bytes, entropy, 1.0, requested_codec=codec
    )


def model(tensors: int, codec: str = "window") -> list[TensorRatio]:
    """Tensors of 100, 200, ... bytes."""
    return [row(f"layer.{i}", 100 * (i + 1), 0.7, 0.66, codec) for i in range(tensors)]


def labels(rows) -> list[str]:
    return [bars.label.partition("\n")[0] for bars in plots._selected(rows)]


def test_a_model_of_many_tensors_shows_the_largest_the_others_and_the_total():
    found = labels(model(100))
    assert found == [*(f"layer.{i}" for i in range(99, 84, -1)), "85 smaller tensors", "total"]


def test_few_tensors_are_all_shown_in_the_order_of_the_file():
    assert labels(model(3)) == ["layer.0", "layer.1", "layer.2", "total"]
    assert labels(model(1)) == ["layer.0"]


def test_every_codec_has_its_summaries():
    found = [bars.label for bars in plots._selected([*model(100), *model(100, "raw")])]
    assert len(found) <= 17
    assert found[0].endswith(", window")
    assert found[1].endswith(", raw")
    assert [label.partition("\n")[0] for label in found[-4:]] == ["94 smaller tensors", "total"] * 2


def test_summaries_are_weighted_by_bytes():
    bars = plots._selected([row("large", 3000, 0.5, 0.4), row("small", 1000, 0.9, 0.8)])
    assert bars[-1].label == "total\n3.91 KiB, window"
    assert bars[-1].ratio == pytest.approx(0.6)
    assert bars[-1].bound == pytest.approx(0.5)


def test_names_of_any_length_are_shortened():
    (bars,) = plots._selected([row("x" * 200 + "end", 100, 0.5, 0.5)])
    name = bars.label.partition("\n")[0]
    assert len(name) == 49
    assert name.endswith("end")


def test_names_are_neither_formulas_nor_control_characters(tmp_path):
    pytest.importorskip("matplotlib")
    plots.plot_ratios([row("$a_{$b}$\x1b\n$", 100, 0.5, 0.5)], tmp_path / "out.svg")
    assert labels([row("$x\n", 100, 0.5, 0.5)]) == [r"\$x\n"]


def size_of(path) -> tuple[int, int]:
    return struct.unpack(">II", path.read_bytes()[16:24])


@pytest.mark.parametrize("tensors", [0, 1, 100, 3000])
def test_images_of_ratios_are_less_than_1600_pixels_high(tmp_path, tensors):
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    plots.plot_ratios([*model(tensors), *model(tensors, "raw")], str(path))
    width, height = size_of(path)
    assert 200 < height < 1600
    assert 200 < width < 1600
