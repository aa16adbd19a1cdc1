"""Profiles, as environment variables and as settings files."""

from __future__ import annotations

import pytest
from narrowcast._dropin import policy
from narrowcast._native.settings import VARIABLES
from narrowcast._try.profiles import BUILT_IN, DEFAULT, NCCL_ALONE, OFF, Profile


@pytest.fixture
def with_library(with_host_drop_in, monkeypatch):
    monkeypatch.setenv("NARROWCAST_LIBRARY", with_host_drop_in["NARROWCAST_LIBRARY"])


@pytest.mark.usefixtures("with_library")
@pytest.mark.parametrize("profile", [*BUILT_IN.values(), NCCL_ALONE, OFF], ids=lambda one: one.name)
def test_the_settings_of_profiles_are_valid(profile, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(profile.toml("a comment with \u00b1"))
    assert policy.check(path)["faults"] == []
    assert set(profile.environment()) <= VARIABLES
    assert len(path.read_text().splitlines()) == 1 + len(profile.settings)


def test_the_default_profiles_exist():
    assert set(DEFAULT) <= set(BUILT_IN)
    assert BUILT_IN["ctas-16"].environment() == {"NARROWCAST_MAX_CTAS": "16"}
    assert BUILT_IN["raw"].toml("x") == '# x\ncodec = "raw"\n'


def test_a_file_is_passed_on_and_copied(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("take = 'always'\n")
    profile = Profile("own.toml", {}, path)
    assert profile.environment() == {"NARROWCAST_CONFIG": str(path)}
    assert profile.toml("x") == "# x\ntake = 'always'\n"
