"""Encoded tensors as the weights of accelerate's offloading."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_submodules  # noqa: E402
from narrowcast.torch import EncodedTensors  # noqa: E402
from torch import nn  # noqa: E402


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(200, 32)
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 200, bias=False)
        self.head.weight = self.embed.weight
        self.bfloat16().eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden).relu()
        return self.head(self.norm(hidden))


TOKENS = torch.arange(20)


def run(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS)


@pytest.mark.parametrize("offload_buffers", [False, True])
def test_cpu_offload_runs_on_encoded_weights(offload_buffers):
    model, expected = Model(), run(Model())
    encoded = EncodedTensors(model.state_dict())
    accelerate.cpu_offload(model, "cpu", state_dict=encoded, offload_buffers=offload_buffers)
    assert {one.device.type for one in model.parameters()} == {"meta"}
    for _ in range(2):
        assert torch.equal(run(model), expected)
    assert {one.device.type for one in model.parameters()} == {"meta"}


def test_removing_the_hooks_restores_the_weights():
    model, state = Model(), Model().state_dict()
    accelerate.cpu_offload(model, "cpu", state_dict=EncodedTensors(model.state_dict()), offload_buffers=True)
    remove_hook_from_submodules(model)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_dispatch_model_keeps_tied_weights_tied():
    # "disk" is what accelerate calls offloading where a CPU is the main device; the state dict has priority.
    model, expected = Model(), run(Model())
    device_map = {"embed": "disk", "layers": "disk", "norm": "cpu", "head": "disk"}
    encoded = EncodedTensors({name: one for name, one in model.state_dict().items() if not name.startswith("norm")})
    accelerate.dispatch_model(
        model, device_map, main_device="cpu", state_dict=encoded, offload_index={}, force_hooks=True
    )
    assert model.layers[0].weight.device.type == "meta"
    for _ in range(2):
        assert torch.equal(run(model), expected)
    assert encoded.info("embed.weight") is encoded.info("head.weight")


def test_a_hook_takes_the_mapping_as_weights_map():
    layer, expected = nn.Linear(32, 32), None
    x = torch.ones(2, 32)
    expected = layer(x).detach()
    hook = AlignDevicesHook("cpu", offload=True, weights_map=EncodedTensors(dict(layer.named_parameters())))
    add_hook_to_module(layer, hook)
    assert torch.equal(layer(x), expected)


def test_a_missing_weight_is_named():
    model = Model()
    accelerate.cpu_offload(model, "cpu", state_dict=EncodedTensors({"embed.weight": torch.ones(200, 32)}))
    with pytest.raises(KeyError, match=r"layers.0.weight"):
        run(model)


def test_a_llama_generates_the_same_tokens():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).bfloat16().eval()
    prompt = torch.arange(8)[None]
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    accelerate.cpu_offload(model, "cpu", state_dict=EncodedTensors(model.state_dict()))
    assert torch.equal(model.generate(prompt, **options), expected)
