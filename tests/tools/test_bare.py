"""tools/bare.sh hides CUDA from the command that it runs, and passes on its exit status."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BARE = Path(__file__).parents[2] / "tools" / "bare.sh"


def bare(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BARE, *command], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.fixture
def namespaces() -> None:
    if "no mount namespace" in bare("true").stderr:
        pytest.skip("mount namespaces are not available")


@pytest.fixture
def with_nvcc(tmp_path: Path) -> str:
    """A PATH whose first folder has an nvcc."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho nvcc runs\n")
    nvcc.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert shutil.which("nvcc", path=path) == str(nvcc)
    return path


def test_every_nvcc_is_hidden(namespaces: None, with_nvcc: str) -> None:
    done = bare("sh", "-c", "command -v nvcc && nvcc", PATH=with_nvcc)
    assert done.returncode != 0
    assert "nvcc runs" not in done.stdout


def test_cuda_folders_are_hidden(namespaces: None) -> None:
    script = "ls -A /usr/local/include; for folder in /usr/local/cuda*; do [ ! -d $folder ] || ls -A $folder; done"
    done = bare("sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "")


def test_variables_of_cuda_are_cleared() -> None:
    leading = {"CUDA_HOME": "/opt/cuda", "CUDACXX": "/opt/cuda/bin/nvcc", "CPATH": "/opt/cuda/include"}
    done = bare("sh", "-c", "echo $CUDA_HOME$CUDACXX$CPATH $PYTHONNOUSERSITE", **leading)
    assert done.stdout.strip() == "1"


def test_arguments_and_exit_status_are_passed_on() -> None:
    done = bare("sh", "-c", 'echo "$1"; exit 7', "sh", "two words")
    assert (done.returncode, done.stdout) == (7, "two words\n")


def test_a_toolkit_in_usr_local_can_be_kept(namespaces: None) -> None:
    done = bare("--toolkit", "sh", "-c", "ls -A /usr/local/include; command -v nvcc; ls /usr/local/cuda/bin/nvcc")
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.stdout == "/usr/local/cuda/bin/nvcc\n"


def test_without_namespaces_the_command_runs_with_a_message(tmp_path: Path) -> None:
    unshare = tmp_path / "unshare"
    unshare.write_text("#!/bin/sh\necho not permitted >&2\nexit 1\n")
    unshare.chmod(0o755)
    done = bare("echo", "ran", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "cannot create a mount namespace (not permitted)" in done.stderr


def test_a_command_is_required() -> None:
    done = bare()
    assert done.returncode == 2
    assert "usage: tools/bare.sh [--toolkit] COMMAND..." in done.stderr
