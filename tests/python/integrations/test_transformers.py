"""Offloaded modules of transformers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from narrowcast.torch import offload  # noqa: E402


@pytest.fixture
def model():
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).bfloat16().eval()


@pytest.mark.parametrize("whole_layers", [False, True])
def test_a_llama_generates_the_same_tokens(model, whole_layers):
    prompt = torch.arange(8)[None]
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    offloaded = offload(model, units=model.model.layers if whole_layers else None, min_bytes=0)
    assert model.device.type == "cpu"
    assert torch.equal(model.generate(prompt, **options), expected)
    assert torch.equal(offloaded.restore().generate(prompt, **options), expected)


def test_a_saved_model_has_all_weights(model, tmp_path):
    state = model.state_dict()
    offload(model, min_bytes=0)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt")
    assert all(torch.equal(saved[name], state[name]) for name in state)
