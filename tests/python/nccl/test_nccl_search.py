"""The search for NCCL: folders, order, and the examination of candidates."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from narrowcast._dropin import nccl_search
from narrowcast._dropin.nccl_search import Candidate

SOURCE = """
int ncclGetVersion(int* version) { *version = 22809; return 0; }
const char* names[] = {"NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL version", "no NCCL_NAME here"};
"""


@pytest.fixture
def places(wheel, tmp_path, monkeypatch):
    """An empty wheel, two folders of LD_LIBRARY_PATH and one of the system."""
    for name in ("first", "second", "system"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(nccl_search, "_FOLDERS", (str(tmp_path / "system"),))
    return {
        "setting": tmp_path / "named.so",
        "wheel": wheel,
        **{name: tmp_path / name / "libnccl.so.2" for name in ("first", "second", "system")},
    }


def found(places, **environment):
    folders = f"relative:{places['first'].parent}:{places['second'].parent}"
    return nccl_search.candidates({"LD_LIBRARY_PATH": folders, **environment})


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python cannot parse TOML")
def test_the_settings_file_names_nccl_unless_the_environment_does(places, tmp_path):
    for path in places.values():
        path.write_bytes(b"NCCL")
    config = tmp_path / "settings.toml"
    config.write_text(f"nccl_library = '{places['first']}'\n")
    assert found(places, NARROWCAST_CONFIG=str(config)) == [Candidate("setting", places["first"])]
    named = {"NARROWCAST_NCCL_LIBRARY": str(places["setting"]), "NARROWCAST_CONFIG": str(config)}
    assert found(places, **named) == [Candidate("setting", places["setting"])]
    config.write_text("nccl_library = [")
    assert found(places, NARROWCAST_CONFIG=str(config))[0].source == "pip wheel"


def test_the_setting_then_the_wheel_then_the_system(places):
    assert found(places) == []
    assert nccl_search.chosen([]) is None
    for path in places.values():
        path.write_bytes(b"NCCL")
    every = [
        Candidate("pip wheel", places["wheel"]),
        Candidate("system", places["first"]),
        Candidate("system", places["second"]),
        Candidate("system", places["system"]),
    ]
    assert found(places) == every
    assert nccl_search.chosen(every) == every[0]
    assert found(places, NARROWCAST_NCCL_LIBRARY=str(places["setting"])) == [Candidate("setting", places["setting"])]


def test_one_file_under_two_names_is_one_candidate(places):
    places["system"].write_bytes(b"NCCL")
    places["first"].symlink_to(places["system"])
    assert [one.path for one in found(places)] == [places["first"]]


def test_a_setting_excludes_other_candidates(places):
    places["wheel"].write_bytes(b"NCCL")
    for value, fault in (
        (str(places["setting"]), "it is not a file"),
        (str(places["wheel"].parent), "it is not a file"),
    ):
        (one,) = found(places, NARROWCAST_NCCL_LIBRARY=value)
        assert (one.source, one.fault) == ("setting", fault)


def test_the_drop_in_is_not_mistaken_for_nccl(places):
    places["first"].write_bytes(b"getenv NARROWCAST_NCCL_LIBRARY\0")
    places["second"].write_bytes(b"NCCL")
    judged = found(places)
    assert judged[0].fault == "it is Narrowcast's drop-in, not NCCL"
    assert nccl_search.chosen(judged).path == places["second"]


def test_an_empty_file_is_not_a_library(places):
    places["first"].touch()
    assert "cannot be read" in found(places)[0].fault


def test_version_and_variables_are_read_from_the_library(tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler was found")
    library = tmp_path / "libnccl.so.2"
    options = ["-x", "c", "-", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([compiler, *options], input=SOURCE.encode(), check=True)
    assert nccl_search.probe(library) == (22809, None)
    assert nccl_search.variables(library) == {"NCCL_DEBUG", "NCCL_P2P_DISABLE"}
    subprocess.run([compiler, *options], input=b"int other;", check=True)
    assert "ncclGetVersion" in nccl_search.probe(library)[1]
    crash = b"__attribute__((constructor)) static void crash(void) { __builtin_trap(); }"
    subprocess.run([compiler, *options], input=crash, check=True)
    version, fault = nccl_search.probe(library)
    assert version is None
    assert fault.startswith("loading it ended the process")
    library.write_text("no library")
    assert "invalid ELF header" in nccl_search.probe(library)[1] or "too short" in nccl_search.probe(library)[1]


@pytest.mark.parametrize(
    ("version", "text"), [(22809, "2.28.9"), (2804, "2.8.4"), (21805, "2.18.5"), (23203, "2.32.3")]
)
def test_versions_are_formatted_as_by_nccl(version, text):
    assert nccl_search.version_text(version) == text
