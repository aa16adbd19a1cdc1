"""Plans from files: programs, and documents of any format."""

from __future__ import annotations

import narrowcast
import pytest
from narrowcast.errors import InvalidArgumentError, NarrowcastError
from narrowcast.plan import PlanError, Program, build, load

FUNCTION = """
from narrowcast.plan import Program

def plan(ranks=2):
    p = Program("all_gather", ranks)
    for r in p.ranks:
        for peer in p.ranks:
            peer.output[r] = r.input[0]
    return p
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Writes a program and returns its name, relative to the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        (tmp_path / "p.py").write_text(text)
        return "p.py"

    return write


def test_a_program_defines_a_function_of_the_ranks(program):
    name = program(FUNCTION)
    assert len(load(name).model.ranks) == 2
    assert len(load(name, ranks=5).model.ranks) == 5


def test_a_program_can_define_a_plan(program):
    name = program(FUNCTION + "\nplan = plan(3)\n")
    assert len(load(name).model.ranks) == 3
    assert len(load(name, ranks=3).model.ranks) == 3
    with pytest.raises(InvalidArgumentError, match=r"p\.py: the plan is for 3 ranks, not 4"):
        load(name, ranks=4)


def test_a_program_imports_modules_of_its_folder(program, tmp_path):
    (tmp_path / "helper_of_p.py").write_text(FUNCTION)
    assert len(load(program("from helper_of_p import plan\n")).model.ranks) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "p.py: 'plan' is not defined"),
        ("plan = 1\n", "p.py: 'plan' must be a plan or a function, not int"),
        ("def plan():\n    pass\n", r"p.py: plan\(\) must return a plan, not None"),
        ("def plan(ranks):\n    return 0\n", r"p.py: plan\(\) missing a required argument: 'ranks' \(--ranks gives"),
        ("def plan(ranks, n):\n    return 0\n", r"p.py: plan\(\) missing a required argument: 'ranks'"),
        ("\nx = 1 / 0\n", "^p.py:2: ZeroDivisionError: division by zero$"),
        ("def plan(ranks=2):\n    return nothing\n", "^p.py:2: NameError: name 'nothing' is not defined$"),
        ("x = (\n", r"^p.py:1: SyntaxError: '\(' was never closed$"),
        ("import sys\nsys.exit(3)\n", "^p.py:2: SystemExit: 3$"),
        (FUNCTION.replace("input[0]", "input[1]"), "^p.py:8: the input of rank 0, of 1 chunk, has no chunk 1$"),
    ],
)
def test_a_wrong_program_is_an_error_at_its_line(program, text, message):
    with pytest.raises(NarrowcastError, match=message):
        load(program(text))


def test_a_program_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.py")


def test_documents_are_recognised_by_their_content(tmp_path, program):
    plan = load(program(FUNCTION))
    plan.save(tmp_path / "saved.xml")
    found = load(tmp_path / "saved.xml")
    assert found.model == plan.model
    assert found.site(5) is None
    with pytest.raises(InvalidArgumentError, match=r"saved\.xml: the plan is for 2 ranks, not 3"):
        load(tmp_path / "saved.xml", ranks=3)


def test_arguments_are_checked(tmp_path, program):
    load(program(FUNCTION)).save(tmp_path / "saved.json")
    for name in ("saved.json", "p.py"):
        with pytest.raises(InvalidArgumentError, match=f"{name}: depth is only for plans in the XML of MSCCL"):
            load(tmp_path / name, depth=3)
        with pytest.raises(TypeError, match="ranks is '2', not an integer"):
            load(tmp_path / name, ranks="2")
    with pytest.raises(TypeError, match="ranks is '2', not an integer"):
        build("ring", "all_gather", "2")
    with pytest.raises(ValueError, match="depth is 0: it must be positive"):
        build("ring", "all_gather", 2, depth=0)
    with pytest.raises(ValueError, match="depth is -1: it must not be negative"):
        load(tmp_path / "saved.json").verify(depth=-1)
    with pytest.raises(TypeError, match="plan is of type int: neither a plan nor its JSON form"):
        narrowcast.explain("all_reduce", 1, dtype="int8", ranks=2, plans=[5])


@pytest.mark.parametrize("content", [b"", b"plan", b"{}", b"[1]", b"<algo", b"\xff\xfe\x00"])
def test_other_files_are_an_error_that_names_them(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match="other: "):
        load(path)


def test_errors_of_programs_have_the_site(program):
    with pytest.raises(PlanError) as raised:
        load(program(FUNCTION.replace("input[0]", "input[1]")))
    assert (raised.value.site.file, raised.value.site.line) == ("p.py", 8)


def test_a_plan_of_a_program_is_a_program(program):
    assert isinstance(load(program(FUNCTION)), Program)


def test_a_program_that_does_not_take_ranks_says_so(program):
    with pytest.raises(InvalidArgumentError, match=r"p\.py: plan\(\) got an unexpected keyword argument 'ranks'$"):
        load(program("def plan():\n    return None\n"), ranks=2)


def test_a_step_that_does_not_exist_is_an_error_at_its_place(tmp_path, program):
    load(program(FUNCTION)).save(tmp_path / "saved.json")
    text = (tmp_path / "saved.json").read_text()
    (tmp_path / "saved.json").write_text(text.replace('"copy"', '"cpy"', 1))
    with pytest.raises(
        InvalidArgumentError, match=r"saved\.json: plan: ranks\[0\]\.groups\[0\]\.steps\[0\]\.step: 'cpy'"
    ):
        load(tmp_path / "saved.json")
