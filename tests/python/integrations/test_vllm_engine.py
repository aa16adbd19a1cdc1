"""The scripts for vLLM, in its engine, with a small model of random weights: on CPUs, or on a GPU if there is one."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from example_scripts import FOLDER, run_script
from narrowcast import cuda

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

ENVIRONMENT = {
    "TORCH_COMPILE_DISABLE": "1",  # which would take minutes
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
# Runs a script, and prints the bytes that vLLM's worker has transferred in jobs without errors.
OBSERVED = """
import json, runpy, sys
from narrowcast.integrations import vllm as ours

kinds, moved = {}, {"store": 0, "load": 0, "failed": 0}

def observed(kind, function):
    def submit(self, job, *specs):
        kinds[job] = kind
        return function(self, job, *specs)
    return submit

def finished(self, function=ours._Worker.get_finished):
    found = function(self)
    for one in found:
        moved[kinds[one.job_id] if one.success else "failed"] += one.transfer_size
    return found

ours._Worker.submit_store = observed("store", ours._Worker.submit_store)
ours._Worker.submit_load = observed("load", ours._Worker.submit_load)
ours._Worker.get_finished = finished
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps(moved))
"""
LAYERS, HEADS, WIDTH = 8, 2, 32
PROMPT_TOKENS = 45 * 500  # of the script: its tokens are bytes
TOKEN_BYTES = LAYERS * 2 * HEADS * WIDTH * torch.bfloat16.itemsize


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=HEADS * WIDTH,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=1 << 15,
    )
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    tokens = {token: number for number, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def test_the_engine_restores_a_prompt_from_encoded_blocks(model, tmp_path):
    done = run_script(tmp_path, "-c", OBSERVED, FOLDER / "vllm_kv_offload.py", model, **ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    moved = json.loads(done.stdout.splitlines()[-1])
    prompt_bytes = PROMPT_TOKENS * TOKEN_BYTES
    # Whole blocks.
    assert 0.98 * prompt_bytes < moved["load"] <= moved["store"] <= 1.02 * prompt_bytes
    assert moved["failed"] == 0


@pytest.mark.skipif(importlib.util.find_spec("nixl") is None, reason="nixl is not installed")
def test_an_engine_continues_what_another_one_computed(model, tmp_path):
    done = run_script(tmp_path, FOLDER / "vllm_disaggregated.py", model, UCX_TLS="tcp", **ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    (received,) = re.findall(r"request \S+: received (\d+) bytes of KV blocks as (\d+)", done.stderr)
    raw_bytes, wire_bytes = map(int, received)
    assert 45 * 200 * TOKEN_BYTES <= raw_bytes <= 1.02 * 45 * 200 * TOKEN_BYTES
    assert 0.6 * raw_bytes < wire_bytes < 0.75 * raw_bytes


def test_the_engine_starts_the_worker_with_encoded_weights(model, tmp_path):
    done = run_script(tmp_path, FOLDER / "vllm_weight_offload.py", model, **ENVIRONMENT)
    if cuda.device_count():
        assert done.returncode == 0, done.stderr
        assert "The capital of France is" in done.stdout
    else:
        # vLLM has parsed the options and created the worker, which needs a GPU, as all of vLLM's prefetching does.
        assert "narrowcast/integrations/vllm_weights.py" in done.stderr
        assert done.stderr.rstrip().endswith("RuntimeError: Unsupported device type: cpu"), done.stderr
