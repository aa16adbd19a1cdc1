"""Plants faults in sources, and reports those that the tests do not notice.

    mutants.py [--sample 20] [--seed 1] [--tests NAME]... FILE...    # make mutants FILES="src/comm/split.cc" SAMPLE=20
    mutants.py --patches FOLDER                                      # every *.patch in it is a fault

universalmutator proposes faults, each in one line: operators, constants, conditions, deleted statements. The sample is
random, the same for the same seed, and takes a second fault of a line only after one of every line. Faults that do not
compile, or whose compiled code is that of the original, are left out. A fault is killed if a test fails, crashes, or
takes three times as long as without the fault.

Files of src/AREA are tested by AREA_test, those of python/narrowcast/MODULE by tests/python/MODULE (or
test_MODULE.py). --tests names others: areas for C++, paths for Python. Tests in Python use the libraries in build/.

Everything happens in a copy of the tree in build-mutants/, so the sources can be edited meanwhile.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import difflib
import fcntl
import functools
import io
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from universalmutator.mutator import mutants_regexp

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build-mutants"
TREE, BUILD, LOG = PLACE / "tree", PLACE / "build", PLACE / "log"
RULES = {".py": ["universal.rules", "python.rules"], "": ["universal.rules", "c_like.rules", "cpp.rules"]}
VERDICTS = ("killed", "timeout", "survived", "invalid", "equivalent")
# Without the ceiling, git takes the copy of the tree for a folder of this repository.
ENVIRONMENT = {**os.environ, "GIT_CEILING_DIRECTORIES": str(PLACE), "PYTHONDONTWRITEBYTECODE": "1"}
ENVIRONMENT |= {"PYTHONPATH": str(TREE / "python"), "NARROWCAST_LIBRARY": str(ROOT / "build/libnarrowcast.so")}


class Mutant(NamedTuple):
    """A fault as a unified diff, and where it is: a file and line, or the name of a patch."""

    place: str
    diff: str

    @property
    def files(self) -> list[str]:
        return re.findall(r"^\+\+\+ b/(\S+)", self.diff, re.MULTILINE)


def copy_tree() -> None:
    """Makes TREE equal to the working tree. Unchanged files keep their times, so that Ninja does not build them."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    wanted = {name for name in names if (ROOT / name).is_file()}
    for path in [path for path in TREE.rglob("*") if path.is_file()]:
        if str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name in wanted:
        source, copy = ROOT / name, TREE / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    if not (TREE / "build").is_symlink():
        (TREE / "build").symlink_to(ROOT / "build")


def propose(file: str, shuffle: random.Random) -> list[tuple[int, Mutant]]:
    """The mutants of a file in random order, each with the number of mutants of the same line before it."""
    lines = (TREE / file).read_text().splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):
        found = mutants_regexp(lines, RULES.get(Path(file).suffix, RULES[""]), ignorePatterns=[])
    shuffle.shuffle(found)
    earlier: collections.Counter[int] = collections.Counter()
    mutants = []
    for line, code, *_ in found:
        changed = [*lines[: line - 1], *code.splitlines(keepends=True), *lines[line:]]
        diff = "".join(difflib.unified_diff(lines, changed, f"a/{file}", f"b/{file}", n=2))
        mutants.append((earlier[line], Mutant(f"{file}:{line}", diff)))
        earlier[line] += 1
    return mutants


def run(command: list[str], seconds: float | None = None) -> str:
    """Runs a command in TREE, with its output in LOG: "passed", "failed" or "timeout". Ends its descendants, too."""
    with (
        LOG.open("w") as log,
        subprocess.Popen(
            command, cwd=TREE, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            return "failed" if process.wait(seconds) else "passed"
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def meaning(source: str) -> str:
    """What Python executes: the syntax tree without docstrings and annotations of functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        for name in {"annotation", "returns"} & ({*node._fields} if not isinstance(node, ast.AnnAssign) else set()):
            setattr(node, name, None)
    return ast.dump(tree)


class Suite:
    """The tests that judge the mutants of a file. Made once: builds them, and runs them without a fault."""

    def __init__(self, is_python: bool, tests: tuple[str, ...]) -> None:
        self.is_python, self.tests = is_python, tests
        if is_python:
            self.commands = [[sys.executable, "-m", "pytest", "-x", "-q", *tests]]
        else:
            self.commands = [[f"{BUILD}/tests/{name}", "--abort-after=1"] for name in tests]
        print(f"building and running {' '.join(tests)}", flush=True)
        self.original = self.compiled([])
        begin = time.monotonic()
        if self.original is None or any(run(command) != "passed" for command in self.commands):
            sys.exit(f"{' '.join(tests)}: cannot be built, or fails without a fault; see {LOG}")
        self.seconds = time.monotonic() - begin

    def compiled(self, files: list[str]) -> list[bytes | str] | None:
        """The code that the tests execute, or None if it does not compile."""
        if self.is_python:
            with contextlib.suppress(SyntaxError, ValueError):
                return [meaning((TREE / file).read_text()) for file in files]
            return None
        if run(["cmake", "--build", str(BUILD), "--target", *self.tests]) != "passed":
            return None
        return [(BUILD / "tests" / name).read_bytes() for name in self.tests]

    def judge(self, mutant: Mutant) -> str:
        """One of VERDICTS."""
        originals = {file: (TREE / file).read_bytes() for file in mutant.files}
        before = self.compiled(mutant.files) if self.is_python else self.original
        try:
            patch = subprocess.run(["git", "apply", "-"], cwd=TREE, env=ENVIRONMENT, input=mutant.diff, text=True)
            code = self.compiled(mutant.files) if patch.returncode == 0 else None
            if code is None or code == before:
                return "invalid" if code is None else "equivalent"
            results = (run(command, 3 * self.seconds + 5) for command in self.commands)
            failure = next((result for result in results if result != "passed"), "survived")
            return "killed" if failure == "failed" else failure
        finally:
            for file, content in originals.items():
                (TREE / file).write_bytes(content)


def tests_of(file: str, named: list[str]) -> tuple[str, ...]:
    """The paths of tests in Python, or the names of native test programs."""
    folder, *parts = Path(file).with_suffix("").parts
    if not file.endswith(".py"):
        tests = [f"{area}_test" for area in named or (parts[:1] if folder == "src" else [])]
    else:
        module = parts[1].lstrip("_") if folder == "python" and parts[1:] else ""
        paths = named or ([f"tests/python/{module}", f"tests/python/test_{module}.py"] if module else [])
        tests = [path for path in paths if (TREE / path).exists()]
    if not tests:
        sys.exit(f"{file}: no tests are known for it (--tests)")
    return tuple(tests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--sample", type=int, default=20, help="number of faults that are judged")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", action="append", default=[], metavar="NAME")
    parser.add_argument("--patches", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.files and not arguments.patches:
        parser.error("no FILE and no --patches")

    TREE.mkdir(parents=True, exist_ok=True)
    lock = (PLACE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{PLACE} is in use")
    copy_tree()
    for file in arguments.files:
        if not (TREE / file).is_file():
            parser.error(f"{file} is not a file of this repository")
    if arguments.patches:
        mutants = [Mutant(path.name, path.read_text()) for path in sorted(arguments.patches.glob("*.patch"))]
    else:
        shuffle = random.Random(arguments.seed)
        proposed = [mutant for file in arguments.files for mutant in propose(file, shuffle)]
        shuffle.shuffle(proposed)
        mutants = [mutant for _, mutant in sorted(proposed, key=lambda item: item[0])]
    if any(not file.endswith(".py") for mutant in mutants for file in mutant.files):
        # Compiles quickly: little optimization, precompiled headers, and a source at a time.
        options = ["-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG", "-DNARROWCAST_PRECOMPILED=ON", "-DNARROWCAST_UNITY=OFF"]
        if run(["cmake", "-S", str(TREE), "-B", str(BUILD), "-G", "Ninja", *options]) != "passed":
            sys.exit(f"cannot configure {BUILD}; see {LOG}")
    # A fault can make a program allocate without end.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    suite = functools.cache(Suite)
    verdicts: dict[Mutant, str] = {}
    tables: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    judged = 0
    with contextlib.suppress(KeyboardInterrupt):  # the summary then has what was judged before
        for mutant in mutants:
            if judged == arguments.sample and not arguments.patches:
                break
            file = mutant.files[0]
            verdict = suite(file.endswith(".py"), tests_of(file, arguments.tests)).judge(mutant)
            verdicts[mutant] = verdict
            tables[file][verdict] += 1
            judged += verdict in VERDICTS[:3]
            print(f"{judged:4} {verdict:10} {mutant.place}", flush=True)

    tables["total"] = sum(tables.values(), collections.Counter())
    print("\n" + " ".join(f"{name:>10}" for name in VERDICTS))
    for name, counts in tables.items():
        print(" ".join(f"{counts[verdict]:10}" for verdict in VERDICTS), f" {name}")
    killed = judged - tables["total"]["survived"]
    print(f"\n{killed} of {judged} killed ({100 * killed / max(judged, 1):.0f}%). Survivors:\n")
    print("\n".join(mutant.diff for mutant, verdict in verdicts.items() if verdict == "survived"))


if __name__ == "__main__":
    main()
