"""Tables fit the terminal: columns are left out and names are folded, but no number is cut."""

from __future__ import annotations

import json

import numpy as np
import pytest
from narrowcast.cli._tables import Column, Table, text_width
from narrowcast.files import save_file
from sample_values import normal


@pytest.fixture
def model(tmp_path):
    """An encoded file of tensors with long names and many values, and its safetensors file."""
    names = [f"model.layers.{i}.self_attn.projections.weight" for i in range(3)]
    tensors = {name: normal("float32", 1_500_000) for name in names}
    tensors |= {"mask": np.zeros(5000, bool), "positions": np.arange(5000, dtype=np.int16)}
    save_file(tensors, tmp_path / "model.ncast")
    return tensors


def table() -> Table:
    made = Table(
        Column("name", folds=True),
        Column("needed", is_number=True),
        Column("extra", is_number=True, rank=1),
        Column("more", rank=2),
        title="A title",
    )
    made.add_row("a" * 30, "11,234,567", "22,345,678", "more words", end_section=True)
    made.add_row("total", "1", "2", "")
    return made


@pytest.mark.parametrize("width", range(29, 100))
def test_a_table_has_the_width_of_the_terminal_and_whole_numbers(width):
    text = "\n".join(table().lines(width))
    assert max(map(text_width, text.splitlines())) <= width
    assert "11,234,567" in text
    assert text.count("a") >= 30
    shown = [name for name in ("extra", "more") if name in text.splitlines()[2]]
    assert shown == ["extra", "more"][: len(shown)]
    assert ("22,345,678" in text) == ("extra" in shown)


def test_wide_terminals_show_all_columns():
    assert list(table().lines(table().width())) == [
        "A title",
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━┓",
        "┃ name                           ┃     needed ┃      extra ┃ more       ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━┩",
        "│ aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa │ 11,234,567 │ 22,345,678 │ more words │",
        "├────────────────────────────────┼────────────┼────────────┼────────────┤",
        "│ total                          │          1 │          2 │            │",
        "└────────────────────────────────┴────────────┴────────────┴────────────┘",
    ]
    assert next(table().lines(80, is_unicode=False)) == "A title"
    assert all(line.isascii() for line in table().lines(80, is_unicode=False))


def test_characters_of_two_columns_stay_aligned():
    made = Table(Column("name", folds=True), "x")
    made.add_row("大小" * 20, "1")
    made.add_row("plain", "2")
    assert len({text_width(line) for line in made.lines(40)}) == 1


def test_rows_must_have_a_cell_for_every_column():
    with pytest.raises(ValueError, match="a row has 1 cells, but the table has 4 columns"):
        table().add_row("a")


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_tables_of_files_fit(cli_here, model, columns):
    assert cli_here("decode", "-f", "model.ncast", "-o", "model.safetensors").returncode == 0
    model = "model.safetensors"
    for command in (["inspect", "model.ncast"], ["ratio", model], ["ratio", model, model, "--codec", "raw"]):
        done = cli_here(*command, COLUMNS=str(columns))
        assert (done.returncode, done.stderr) == (0, "")
        assert max(map(text_width, done.stdout.splitlines())) <= columns
        assert "…" not in done.stdout
        assert "float32" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "all_reduce", "--bytes", "64M"],
        ["explain", "all_reduce", "--bytes", "1K"],
        ["demo", "-n", "1", "--ranks", "2"],
        ["doctor"],
    ],
)
def test_other_tables_fit_80_columns(cli_here, command):
    done = cli_here(*command, COLUMNS="")
    # A path is not broken: the place where the package is installed can be any length.
    lines = [line for line in done.stdout.splitlines() if not line.strip().startswith("/") or " " in line.strip()]
    assert max(map(len, lines)) <= 80, done.stdout
    if command[0] == "demo":
        assert {"bfloat16", "float16", "float32"} <= set(done.stdout.split())


def test_ratio_has_a_total_and_the_types_of_the_file(cli_here, model, tmp_path):
    assert cli_here("decode", "-f", "model.ncast", "-o", "model.safetensors").returncode == 0
    rows = json.loads(cli_here("ratio", "--json", "model.safetensors").stdout)
    assert {row["tensor"]: row["dtype"] for row in rows if "layers" not in row["tensor"]} == {
        "mask": "bool",
        "positions": "int16",
    }
    lines = cli_here("ratio", "model.safetensors", "--codec", "window", "--codec", "raw").stdout.splitlines()
    total, raw_total = (line.replace("│", " ").split() for line in lines[-3:-1])
    raw_bytes = sum(row["raw_bytes"] for row in rows)
    assert total[:4] == ["total", "window", f"{raw_bytes / (1 << 20):.2f}", "MiB"]
    assert total[4] == f"{sum(row['wire_bytes'] for row in rows) / raw_bytes:.4f}"
    assert raw_total[:2] == ["total", "raw"]
    np.save(tmp_path / "mask.npy", np.zeros(5000, bool))
    one = cli_here("ratio", "mask.npy")
    assert "bool" in one.stdout
    assert "total" not in one.stdout


def test_inspect_shows_the_tensors_of_frames(cli_here, model):
    assert "model.layers.1.self_attn.projections.weight" in cli_here("inspect", "model.ncast").stdout
    frames = json.loads(cli_here("inspect", "model.ncast", "--json").stdout)
    assert any("mask" in frame["tensors"] for frame in frames)
