"""`narrowcast policy check`: what it says about the rules of settings files."""

from __future__ import annotations

import json

import pytest
from narrowcast._dropin import preload
from narrowcast._native.library import library_path

LOSSY = (
    "[[rule]]\nname = 'gradients'\noperation = 'all_reduce'\nmin_bytes = 1048576\nranks = 8\ncodec = 'int6:group=64'\n"
)
REST = "[[rule]]\ncodec = 'int8'\ntake = 'always'\n"


@pytest.fixture
def check(cli_here, host_drop_in, tmp_path):
    """Checks a file with this content, by the drop-in for the host backend."""
    library = tmp_path / "lib" / "libnarrowcast.so"
    library.parent.mkdir()
    library.symlink_to(library_path().absolute())
    library.with_name(preload.NAME).symlink_to(host_drop_in)

    def run(content, *options):
        (tmp_path / "own.toml").write_text(content)
        return cli_here("policy", "check", "own.toml", *options, NARROWCAST_LIBRARY=str(library))

    return run


def test_rules_are_shown_with_the_calls_that_they_take(check):
    done = check(f"codec = 'window'\n{LOSSY}{REST}")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.stdout.splitlines() if "│" in line]
    names, takes, codecs, executed, values = zip(*rows, strict=True)
    assert [name for name in names if name] == ["gradients", "rule 2"]
    assert (
        "all_reduce; reductions by sum, avg; float16, float32, bfloat16; from 1.00 MiB; 8 ranks all operations"
        in " ".join(takes)
    )
    assert "all operations except broadcast; reductions by sum, avg;" in " ".join(takes)
    assert [codec for codec in codecs if codec] == ["int6:group=64", "int8"]
    assert [when for when in executed if when] == ["of the file", "always"]
    assert [one for one in values if one] == ["changed", "changed"]
    assert done.stdout.endswith("Calls that no rule takes deliver exact values.\n")


def test_codecs_of_the_whole_file_are_shown_if_they_change_values(check):
    assert check("codec = 'send=int8'").stdout.endswith("values are changed by int8 for send.\n")
    assert check("codec = 'window'").stdout.endswith("All calls deliver exact values.\n")


def test_rules_that_never_apply_are_errors(check):
    done = check(f"{REST}{LOSSY}")
    assert done.returncode == 1
    assert done.stderr == "narrowcast: own.toml:4: gradients never applies: all of its calls are taken by rule 1\n"
    done = check("off = ['all_reduce']\n[[rule]]\noperation = 'all_reduce'\n")
    assert done.stderr == "narrowcast: own.toml:2: rule 1 never applies: all of its calls are switched off\n"


def test_errors_have_the_file_the_line_and_the_key(check):
    done = check(f"{LOSSY}[[rule]]\nsize = 3\ncodec = 'int9'\n", "--json")
    assert done.returncode == 1
    assert "narrowcast: own.toml:9: in a rule, 'int9' is not a codec (known: auto, within, raw, window" in done.stderr
    assert "narrowcast: own.toml:8: in a rule, there is no key size (known: codec, " in done.stderr
    found = json.loads(done.stdout)
    assert [f"narrowcast: {fault}" for fault in found["faults"]] == done.stderr.splitlines()
    (rule,) = found["rules"]
    assert (rule["name"], rule["line"], rule["lossy"], rule["covered_by"]) == ("gradients", 1, True, [])
    assert (rule["operations"], rule["codec"], rule["min_bytes"]) == (["all_reduce"], "int6:group=64", 1 << 20)


def test_many_rules_are_shown(check):
    found = json.loads(
        check("".join(f"[[rule]]\nmin_bytes = {i}\nmax_bytes = {i}\n" for i in range(300)), "--json").stdout
    )
    assert [rule["min_bytes"] for rule in found["rules"]] == list(range(300))
