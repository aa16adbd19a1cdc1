"""Plans as listings, images and Chrome traces."""

from __future__ import annotations

import json
import struct

import pytest
from narrowcast._plan.drawing import FORMATS
from narrowcast._plan.text import listing
from narrowcast.errors import InvalidArgumentError
from narrowcast.plan import Program, channel, codec


def two_shot(ranks: int) -> Program:
    p = Program("all_reduce", ranks, chunks=ranks, name="two-shot")
    with codec("window"):
        for r in p.ranks:
            total = r.reduce(peer.input[r] for peer in p.ranks)
            for peer in p.ranks:
                peer.output[r] = total
    return p


def deadlock() -> Program:
    """Both ranks wait before they signal."""
    p = Program("all_gather", 2, in_place="no")
    a, b = p.ranks
    for r, peer in ((a, b), (b, a)):
        r.signal(peer)
        r.wait(peer)
    model = p.model
    for rank in model.ranks:
        rank.groups[0].steps.reverse()
    return p


def test_the_listing_names_peers_chunks_and_codecs(capsys):
    two_shot(2).show()
    assert capsys.readouterr().out.splitlines() == [
        'all_reduce "two-shot" of 2 ranks, 2 chunks in a piece: 6 steps',
        "rank 0",
        "     0  copy   input[1] -> to rank 1 (window)",
        "     1  reduce input[0], from rank 1 (window) -> output[0], to rank 1 (window)",
        "     2  copy   from rank 1 (window) -> output[1]",
        "rank 1",
        "     0  copy   input[0] -> to rank 0 (window)",
        "     1  reduce from rank 0 (window), input[1] -> to rank 0 (window), output[1]",
        "     2  copy   from rank 0 (window) -> output[0]",
    ]


@pytest.mark.parametrize("ranks", [2, 8, 40])
def test_images_are_at_most_1600_pixels_wide_and_high(tmp_path, ranks):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    two_shot(ranks).show(path)
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    assert 300 < width < 1600
    assert 200 < height < 1600


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_of_images_is_written(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plan{suffix}"
    two_shot(2).show(path)
    assert path.stat().st_size > 1000
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_the_trace_has_a_process_for_each_rank_and_a_flow_for_each_message(tmp_path):
    path = tmp_path / "trace.json"
    two_shot(3).show(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert named == {"rank 0", "rank 1", "rank 2"}
    steps = [event for event in events if event["ph"] == "X"]
    assert len(steps) == 3 * 5
    assert steps[0]["args"]["line"].endswith(f"test_show.py:{two_shot.__code__.co_firstlineno + 4}")
    begins, ends = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert len(begins) == len(ends) == 12
    for number, begin in begins.items():
        assert begin["pid"] != ends[number]["pid"]
        # Perfetto binds the ends of a flow to the steps that contain them.
        for end in (begin, ends[number]):
            assert any(
                step["pid"] == end["pid"] and step["ts"] <= end["ts"] < step["ts"] + step["dur"] for step in steps
            )


def test_steps_that_cannot_run_are_shown_as_blocked(tmp_path):
    p = deadlock()
    path = tmp_path / "trace.json"
    p.show(path)
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert names == ["blocked", "blocked"]
    pytest.importorskip("matplotlib")
    p.show(tmp_path / "plan.svg")
    assert "blocked" in (tmp_path / "plan.svg").read_text()


def test_other_endings_are_an_error(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"must end in .json or one of .png, .svg, .pdf"):
        two_shot(2).show(tmp_path / "plan.jpg")
    assert not list(tmp_path.iterdir())


def test_a_saved_plan_is_the_json_form(tmp_path):
    p = two_shot(2)
    p.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(p.json())
    assert repr(p) == '<all_reduce "two-shot" of 2 ranks, 2 chunks in a piece: 6 steps>'


def test_rings_between_the_same_ranks_have_the_numbers_that_reports_have():
    p = Program("broadcast", 2, chunks=2)
    p.ranks[0].output[:] = p.ranks[0].input
    p.ranks[1].output[0] = p.ranks[0].input[0]
    with channel("other"):
        p.ranks[1].output[1] = p.ranks[0].input[1]
    shown = "\n".join(listing(p.model, [0]))
    assert "to rank 1 (ring 0)" in shown
    assert "to rank 1 (ring 1)" in shown
