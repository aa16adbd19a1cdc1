"""The servers of vLLM and SGLang know the options that the guide names, and take its commands."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest
from guide_pieces import GUIDE

PAGES = "".join(
    (GUIDE / page).read_text().replace("\\\n", " ") for page in ("kv_offload.md", "offload.md", "vllm_sglang.md")
)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)
COMMANDS += re.findall(r"^ {4}(.+)$", PAGES, re.MULTILINE)
OF_NARROWCAST = {"--nccl"}  # of `narrowcast run`


def arguments_of(program: str) -> list[list[str]]:
    """The arguments of the guide's commands that start a program."""
    found = [command.partition(program)[2] for command in COMMANDS if program in command]
    return [shlex.split(one.replace("CONFIG", "{}")) for one in found]


@pytest.fixture(scope="module")
def vllm():
    module = pytest.importorskip("vllm.engine.arg_utils", reason="vllm is not installed", exc_type=ImportError)
    return module.AsyncEngineArgs.add_cli_args(argparse.ArgumentParser())


@pytest.fixture(scope="module")
def sglang():
    module = pytest.importorskip("sglang.srt.server_args", reason="sglang is not installed", exc_type=ImportError)
    parser = argparse.ArgumentParser()
    module.ServerArgs.add_cli_args(parser)
    return parser


def test_vllm_takes_the_commands(vllm):
    commands = arguments_of("vllm serve ")
    taken = [vllm.parse_args(["--model", *arguments]) for arguments in commands]
    specs = [one.kv_transfer_config.kv_connector_extra_config for one in taken if one.kv_transfer_config]
    assert {"narrowcast.integrations.vllm"} == {one["spec_module_path"] for one in specs if one}
    assert "narrowcast.integrations.vllm_weights.EncodedOffloadWorker" in [one.worker_cls for one in taken]


def test_sglang_takes_the_commands(sglang):
    taken = [sglang.parse_args(arguments) for arguments in arguments_of("sglang.launch_server ")]
    assert "dynamic" in [one.hicache_storage_backend for one in taken]


def test_the_options_in_the_text_are_those_of_a_server(vllm, sglang):
    known = {option for parser in (vllm, sglang) for action in parser._actions for option in action.option_strings}
    named = set(re.findall(r"`(--[\w-]+)", PAGES))
    assert len(named) > 5
    assert named <= known | OF_NARROWCAST
