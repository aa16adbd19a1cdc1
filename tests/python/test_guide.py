"""The programs in the README and the guides run, and the links of all pages resolve."""

from __future__ import annotations

import code
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import narrowcast
import numpy as np
import pytest
from guide_pieces import GUIDE, SETTINGS, pieces
from narrowcast import cuda
from narrowcast._native.library import library_path
from thread_ranks import on_ranks, succeed

ROOT = Path(__file__).parents[2]
SECONDS = 120
RANKS = 2
SUMS = [f"{rank} 3.0" for rank in range(RANKS)]

# Whole programs: blocks of Python or C that begin with their file name.
PROGRAMS = {
    name: text
    for page in [ROOT / "README.md", ROOT / "docs" / "guide" / "communicator.md", ROOT / "docs" / "guide" / "store.md"]
    for text, name in re.findall(
        r"^```(?:python|c)\n((?:#|//) (\w+\.(?:py|c))\n.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
    )
}
# Started once per rank; the others start their ranks themselves.
RANKED = ("by_file.py", "by_torch_store.py", "by_torch_group.py")
NEEDS = {"by_torch_store.py": "torch", "by_torch_group.py": "torch", "by_mpi.py": "mpi4py"}


@pytest.fixture
def start(tmp_path):
    """Starts the ranks of a program, waits for all of them, and returns their output lines, sorted."""

    def run(name, commands, **environment):
        if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
            pytest.skip(f"{NEEDS[name]} is not installed")
        (tmp_path / name).write_text(PROGRAMS[name])
        started = [
            subprocess.Popen(
                [*command, name],
                cwd=tmp_path,
                # Buffered, so that processes that share an output write whole lines.
                env={**os.environ, "PYTHONUNBUFFERED": "", "WORLD_SIZE": str(RANKS), **environment, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, command in enumerate(commands)
        ]
        try:
            ended = [(process.communicate(timeout=SECONDS), process.returncode) for process in started]
        finally:
            for process in started:
                process.kill()
        assert [status for _, status in ended] == [0] * len(started), ended
        return sorted(line for (out, _), _ in ended for line in out.splitlines())

    return run


def free_ports():
    """Two consecutive ports."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    raise AssertionError("no free ports")


def test_the_guide_has_these_programs():
    others = {
        "by_environment.py",
        "by_mpi.py",
        "by_threads.py",
        "by_one_thread.py",
        "limits.py",
        "scratch.py",
        "by_split.py",
        "in_background.py",
        "results.py",
        "store_rows.py",
    }
    of_readme = {"two_ranks.py", "encode.c"}
    assert {*RANKED, *others, *of_readme} == PROGRAMS.keys()


@pytest.mark.parametrize("name", RANKED)
def test_ranks_join(start, name, tmp_path):
    assert start(name, [[sys.executable]] * RANKS, **free_ports()) == SUMS
    assert not list(tmp_path.glob("*.id*"))


def test_ranks_join_through_a_file_store_of_torch(start, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert start("by_torch_store.py", [[sys.executable]] * RANKS) == SUMS


def test_ranks_join_through_mpi(start):
    launcher = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if launcher is None:
        pytest.skip("mpirun was not found")
    assert start("by_mpi.py", [[launcher, "-n", str(RANKS), sys.executable]]) == SUMS


@pytest.mark.parametrize("name", ["by_environment.py", "by_threads.py", "by_one_thread.py"])
def test_one_process_starts_all_ranks(start, name):
    assert start(name, [[sys.executable]]) == SUMS


def test_a_split_program_runs(start):
    assert start("by_split.py", [[sys.executable]]) == ["4.0 6.0 4.0 6.0"]


def test_a_program_whose_calls_allocate_their_results_runs(start):
    assert start("results.py", [[sys.executable]]) == [" [1. 1. 1.]]", "[[0. 0. 0.]"]


def test_a_program_that_creates_in_the_background_runs(start):
    assert start("in_background.py", [[sys.executable]]) == ["1.0"]


def test_the_program_of_the_store_runs(start):
    assert start("store_rows.py", [[sys.executable]]) == ["True", "window stride 0.88"]


def test_the_python_program_of_the_readme_runs(start):
    assert start("two_ranks.py", [[sys.executable]]) == ["2.0"]


def test_the_python_program_of_the_readme_runs_when_it_is_pasted(capsys, monkeypatch):
    monkeypatch.setattr(sys, "displayhook", lambda value: None)  # calls return arrays
    console = code.InteractiveConsole()
    for line in PROGRAMS["two_ranks.py"].splitlines():
        is_incomplete = console.push(line)
    assert not is_incomplete
    written = capsys.readouterr()
    assert (written.out, written.err) == ("2.0\n", "")


def test_every_block_of_code_in_the_readme_is_a_program_that_runs():
    blocks = re.findall(r"^```(?:python|c)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert set(blocks) <= set(PROGRAMS.values())


def test_the_c_program_of_the_readme_runs(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler was found")
    (tmp_path / "encode.c").write_text(PROGRAMS["encode.c"])
    library = library_path().resolve()
    command = [compiler, "-Wall", "-Werror", "encode.c", library, "-o", "encode", "-I", ROOT / "include"]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "encode"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "96 bytes\n", "")


def test_the_c_program_of_the_readme_is_built_with_an_installed_package(tmp_path):
    """With the commands of the readme: the package has the headers, and the library under the name that is loaded."""
    package = Path(narrowcast.__path__[0])
    if not (package / "lib").is_dir():
        pytest.skip("the package is not installed")
    if shutil.which("gcc") is None:
        pytest.skip("gcc was not found")
    (tmp_path / "encode.c").write_text(PROGRAMS["encode.c"])
    (commands,) = re.findall(r"^```sh\n(package=.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": ""}
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "96 bytes\n", "")


def test_the_programs_about_limits_and_scratch_run(start):
    (message,) = start("limits.py", [[sys.executable]])
    assert "have not joined: 1 (of 2)" in message
    assert start("scratch.py", [[sys.executable]]) == [f"{rank} True" for rank in range(RANKS)]
    with narrowcast.LocalRanks(RANKS) as comms:
        assert 1 << 20 < comms[0].counters().scratch_bytes <= 4 << 20


# Pieces of programs.

SECTIONS = {
    (page.stem, heading): blocks for page in sorted(GUIDE.glob("*.md")) for heading, blocks in pieces(page).items()
}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section[0]}-{section[1]}".lower())
def test_the_pieces_of_a_section_run(section, tmp_path, monkeypatch):
    setting = SETTINGS[section]
    if setting.on_gpu and not cuda.device_count():
        pytest.skip("needs a GPU")
    for name in setting.needs:
        pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", **free_ports()}.items():
        monkeypatch.setenv(name, value)
    device = "cuda" if cuda.device_count() else "cpu"
    names = {"DEVICE": device, "narrowcast": narrowcast, "np": np}

    def run(more):
        for part in (setting.before, *SECTIONS[section], setting.after):
            text = part if device == "cuda" else re.sub('"cuda(:0)?"', '"cpu"', part)
            exec(compile(text, str(section), "exec"), more)

    if setting.ranks:
        succeed(on_ranks(setting.ranks, lambda comm: run({**names, "comm": comm})))
    else:
        run(names)


def test_settings_are_those_of_sections():
    assert SECTIONS.keys() == SETTINGS.keys()


# Links.

PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "third_party/*.md", "bench/**/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.is_file()
]


def without_code(text):
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors that GitHub derives from the headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_mentioned_in_pages_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    folders = "abi|bench|cmake|data|docs|examples|include|python|requirements|src|tests|tools"
    for name in re.findall(rf"`((?:{folders})/[^`\s<>*]*)`", text):
        assert (ROOT / name).exists(), name


def test_the_page_checks_find_pages_and_anchors():
    assert len(PAGES) > 10
    assert "errors-and-time-limits" in anchors(ROOT / "docs" / "guide" / "communicator.md")
