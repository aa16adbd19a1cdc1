"""Modules whose parameters are encoded in host memory."""

from __future__ import annotations

import copy
import gc
import pickle
import types
import weakref
from collections import UserDict

import narrowcast
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from narrowcast._torch.host_memory import HostMemory  # noqa: E402
from narrowcast.torch import EncodedTensors, offload  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402


class Model(nn.Module):
    """Parameters of every kind: tied, of its own, of recurrent modules, and used without a call of their module."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(300, 32)
        self.positions = nn.Parameter(torch.randn(50, 32))
        self.recurrent = nn.LSTM(32, 32, batch_first=True)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(3)])
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 300, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor(2.0))
        self.to(dtype).eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens) + self.positions[: tokens.shape[1]]
        hidden, _ = self.recurrent(hidden)
        for layer in self.layers:
            hidden = layer(hidden)
        hidden, _ = self.attention(hidden, hidden, hidden)
        return self.head(hidden) * self.scale


TOKENS = torch.arange(12).reshape(2, 6)


def run(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


# Encoded tensors.


@pytest.mark.parametrize(
    "dtype",
    ["float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int16", "int64", "bool"],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (129, 65)])
def test_tensors_keep_their_bits_shape_and_type(dtype, shape):
    values = (torch.randn(shape) * 9).to(getattr(torch, dtype))
    back = EncodedTensors({"a": values})["a"]
    assert (back.shape, back.dtype) == (values.shape, values.dtype)
    assert torch.equal(bits(back), bits(values))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 3, 6, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(4, 1, 6, 1).to(memory_format=torch.channels_last),
        lambda: torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
        lambda: torch.randn(30, 20).t(),
        lambda: torch.randn(4, 3, 5).permute(2, 0, 1) > 0,
        lambda: torch.randn(30, 20)[:, ::2],
        lambda: torch.randn(30, 20).t()[::3],
        lambda: torch.randn(5, 1).expand(5, 7),
        lambda: torch.randn(3, 0, 2).permute(2, 1, 0),
        lambda: torch.randn(1 << 21, 2).t(),  # several frames
    ],
)
def test_tensors_have_the_strides_of_a_copy(make):
    values = make()
    encoded = EncodedTensors({"a": values})
    found, expected = encoded["a"], values.clone()
    assert (found.stride(), found.shape, found.dtype) == (expected.stride(), expected.shape, expected.dtype)
    assert torch.equal(found, values)
    for out in (torch.empty_like(values), torch.empty(values.shape, dtype=values.dtype)):
        encoded.read_into({"a": out})
        assert torch.equal(out, values)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugated_and_negated_views_become_their_values(dtype):
    values = torch.randn(40, 30, dtype=dtype)
    views = {
        "plain": values,  # not tied to the others, which are in the same memory
        "conj": values.conj(),
        "neg": values.conj().imag,
        "both": torch._neg_view(values.conj()),
        "adjoint": values.mH,
    }
    encoded = EncodedTensors(views)
    for name, view in views.items():
        found = encoded[name]
        assert not found.is_conj()
        assert not found.is_neg()
        assert torch.equal(found, view.clone().resolve_conj().resolve_neg())


def test_encoded_tensors_are_their_own_copy_and_are_not_pickled():
    encoded = EncodedTensors({"a": torch.ones(3)})
    assert copy.copy(encoded) is copy.deepcopy(encoded) is encoded
    with pytest.raises(TypeError, match="EncodedTensors cannot be pickled"):
        pickle.dumps(encoded)


def test_the_mapping_has_the_names_of_the_tensors_in_order():
    encoded = EncodedTensors({"b": torch.ones(3), "a": torch.zeros(2)})
    assert list(encoded) == ["b", "a"]
    assert len(encoded) == 2
    assert "a" in encoded
    assert "c" not in encoded
    with pytest.raises(KeyError, match="c"):
        encoded["c"]
    assert [one.tolist() for one in encoded.read(["a", "b", "a"])] == [[0, 0], [1, 1, 1], [0, 0]]


def test_tied_tensors_are_stored_once():
    weight = torch.randn(400, 64)
    alone, tied = EncodedTensors({"a": weight}), EncodedTensors({"a": weight, "b": weight, "c": weight[:200]})
    assert tied.info("b") == alone.info("a")
    assert alone.wire_bytes < tied.wire_bytes < 2 * alone.wire_bytes
    assert torch.equal(tied["b"], weight)
    assert torch.equal(tied["c"], weight[:200])


def test_tensors_of_a_lazy_mapping_are_not_tied(monkeypatch):
    """The memory of one that was encoded may be that of the next one."""
    monkeypatch.setattr("narrowcast._torch.encoded._BATCH_BYTES", 1)

    class Lazy(UserDict):
        def __getitem__(self, name):
            return torch.full((1000,), super().__getitem__(name))

    encoded = EncodedTensors(Lazy({str(value): float(value) for value in range(20)}))
    assert [encoded[str(value)][0] for value in range(20)] == list(range(20))


def test_tensors_are_read_into_memory_of_the_caller():
    tensors = {"a": torch.randn(3, 50), "b": torch.randn(4).bfloat16(), "c": torch.randn(7) > 0}
    encoded = EncodedTensors(tensors)
    outs = {name: torch.empty_like(tensors[name]) for name in ("c", "a")}
    encoded.read_into(outs)
    assert all(torch.equal(out, tensors[name]) for name, out in outs.items())
    encoded.read_into({})
    with pytest.raises(KeyError):
        encoded.read_into({"d": torch.empty(1)})


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.empty(50, 3), r"a has shape \(50, 3\)"),
        (torch.empty(3, 50, dtype=torch.float64), "float64"),
        (torch.empty(50, 3).T, "not contiguous"),
        (torch.empty(3, 50, device="meta"), "meta: only cpu and cuda"),
    ],
)
def test_outputs_that_do_not_fit_are_errors(out, message):
    with pytest.raises(ValueError, match=message):
        EncodedTensors({"a": torch.randn(3, 50)}).read_into({"a": out})


def test_memory_is_unpinned_after_the_gpus_that_copy_from_it_are_done(monkeypatch):
    calls = []
    cudart = types.SimpleNamespace(
        cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda _: calls.append("unpinned") or 0
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "synchronize", calls.append)
    memory = HostMemory(100, pinned=True)
    memory.devices.add(torch.device("cuda", 1))
    view = memory.tensor[:10]
    del memory
    assert calls == [torch.device("cuda", 1), "unpinned"]
    view.fill_(1)  # the mapping stays until its last tensor is gone


def test_empty_tensors_are_not_tied():
    encoded = EncodedTensors({"a": torch.zeros(0), "b": torch.zeros(0)})
    assert [one.shape for one in encoded.values()] == [(0,), (0,)]


def test_bfloat16_weights_take_less_memory():
    encoded = EncodedTensors({"a": (torch.randn(1 << 18) * 0.02).bfloat16()})
    assert encoded.raw_bytes == 1 << 19
    assert encoded.ratio == encoded.wire_bytes / encoded.raw_bytes < 0.75


def test_a_damaged_frame_is_found():
    encoded = EncodedTensors({"a": torch.randn(5000), "b": torch.ones(3)})
    encoded._entries["a"].frames[0][2000] ^= 1
    with pytest.raises(narrowcast.CorruptError, match=r"frame 0.*checksum"):
        encoded["a"]
    assert torch.equal(encoded["b"], torch.ones(3))


@pytest.mark.parametrize(
    ("tensors", "options", "error", "message"),
    [
        ({"w": torch.eye(3).to_sparse()}, {}, TypeError, "w has layout torch.sparse_coo"),
        ({"w": torch.ones(3, device="meta")}, {}, ValueError, "w is on the meta device"),
        ({"w": 3}, {}, TypeError, "w is of type int"),
        ({"w": torch.ones(3)}, {"codec": "zip"}, ValueError, "zip"),
        ({"w": torch.ones(3)}, {"device": "meta"}, ValueError, "only cpu and cuda"),
    ],
)
def test_what_cannot_be_encoded_is_named(tensors, options, error, message):
    with pytest.raises(error, match=message):
        EncodedTensors(tensors, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="no CUDA GPU was found"):
        EncodedTensors({"w": torch.ones(3)}, device="cuda")


# Offloaded modules.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_outputs_have_the_same_bits(dtype, prefetch):
    expected = run(Model(dtype))
    model = Model(dtype)
    offloaded = offload(model, prefetch=prefetch, min_bytes=0)
    for _ in range(3):
        assert torch.equal(bits(run(model)), bits(expected))
    assert offloaded.raw_bytes == sum(one.nbytes for one in Model(dtype).parameters())
    offloaded.restore()
    assert torch.equal(bits(run(model)), bits(expected))


class Encoder(nn.Module):
    """Modules of torch that have a second path, with other bits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 8, 256, batch_first=True), 2)
        self.attention = nn.MultiheadAttention(128, 8, batch_first=True)
        self.eval()

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        hidden = self.encoder(x, src_key_padding_mask=padding)
        return self.attention(hidden, hidden, hidden, need_weights=False)[0]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("units", [None, lambda model: [model.encoder, model.attention], lambda model: [model]])
def test_modules_with_two_paths_take_that_of_frozen_modules(units, padded, grad, monkeypatch):
    fused, calls = torch._transformer_encoder_layer_fwd, []
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *a: (calls.append(1), fused(*a))[1])
    x = torch.randn(3, 17, 128, generator=torch.Generator().manual_seed(1))
    padding = torch.arange(17) >= torch.tensor([[17], [9], [4]]) if padded else None
    model, frozen = Encoder(), Encoder().requires_grad_(False)
    with torch.set_grad_enabled(grad):
        offloaded = offload(model, min_bytes=0, units=units and units(model))
        for _ in range(2):
            assert torch.equal(bits(model(x, padding)), bits(frozen(x, padding)))
        assert len(calls) == 2 * 2 * 2  # models, passes and layers
        offloaded.restore()
        assert torch.equal(bits(model(x, padding).detach()), bits(Encoder()(x, padding).detach()))
    assert not any("forward" in inner.__dict__ for inner in model.modules())
    assert not any(inner._forward_hooks or inner._forward_pre_hooks for inner in model.modules())


def test_an_error_in_a_module_without_hooks_releases_it():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    offloaded = offload(layer, min_bytes=0)
    with pytest.raises((RuntimeError, AssertionError)):
        layer(torch.ones(1, 2, 3))
    assert repr(layer.linear1.weight).startswith("Released")
    assert offloaded.restore() is layer


def test_chosen_units_hold_all_parameters_inside():
    model, expected = Model(), run(Model())
    offloaded = offload(model, units=model.layers, min_bytes=0)
    assert torch.equal(run(model), expected)
    assert offloaded.raw_bytes == sum(one.nbytes for one in Model().layers.parameters())
    assert model.embed.weight is model.head.weight
    assert torch.equal(model.embed.weight, Model().embed.weight)


def test_parameters_are_released_after_forward():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    held = weakref.ref(model[0].weight)
    offload(model, prefetch=0)
    assert held() is None
    seen = []
    model[0].register_forward_hook(lambda module, *_: seen.append(weakref.ref(module.weight)), prepend=True)
    with torch.no_grad():
        model(torch.ones(1, 64))
    gc.collect()
    assert seen[0]() is None


def test_at_most_the_prefetched_units_are_in_memory():
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    offloaded = offload(model, prefetch=2)
    for _ in range(3):
        with torch.no_grad():
            model(torch.ones(1, 64))
        assert len(offloaded._pending) <= 2
    assert [unit.name for unit in offloaded._pending] == ["0", "1"]


def test_a_changed_order_drops_what_was_fetched_ahead():
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.left, self.right = (nn.Linear(64, 64) for _ in range(3))

        def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
            return (self.left if left else self.right)(self.first(x))

    model, x = Either(), torch.ones(1, 64)
    expected = {left: model(x, left).detach() for left in (True, False)}
    offloaded = offload(model)
    for left in (True, True, False, True, False, False):
        with torch.no_grad():
            assert torch.equal(model(x, left), expected[left])
        assert len(offloaded._pending) <= 1


def test_tied_parameters_of_two_units_are_encoded_once_and_tied_again():
    model = Model()
    embedding_bytes = model.embed.weight.nbytes
    offloaded = offload(model, min_bytes=embedding_bytes)
    assert offloaded.raw_bytes == embedding_bytes
    offloaded.restore()
    assert model.embed.weight is model.head.weight
    assert model.embed.weight.requires_grad
    assert torch.equal(model.embed.weight, Model().embed.weight)


@pytest.mark.parametrize("kept", ["embed.weight", "head.weight"])
def test_tied_parameters_stay_if_one_of_their_uses_stays(kept):
    model = Model()
    offloaded = offload(model, min_bytes=0, keep=lambda name, _: name == kept)
    assert torch.is_tensor(model.embed.weight + 1)
    assert model.embed.weight is model.head.weight
    assert torch.equal(run(model), run(Model()))
    offloaded.restore()
    other = Model()
    offload(other, min_bytes=0, units=[other.head])
    assert other.embed.weight is other.head.weight


class Repeating(nn.Module):
    """One module in several places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shared = nn.Linear(32, 32)
        self.layers = nn.ModuleList([nn.Sequential(self.shared, nn.Tanh()), self.shared, self.shared])
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 1).eval()
        self.again = self.encoder.layers[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.again(self.encoder(self.shared(x)))


@pytest.mark.parametrize("units", [None, lambda model: model.layers[1:], lambda model: [model]])
def test_a_module_may_occur_repeatedly(units):
    x = torch.randn(2, 3, 32)
    model, last = Repeating(), Repeating()
    with torch.no_grad():
        offloaded = offload(model, min_bytes=0, units=units and units(model))
        for _ in range(2):
            assert torch.equal(model(x), last(x))
        found, expected = model.state_dict(), last.state_dict()
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        offloaded.restore()
        assert model.layers[2] is model.shared
        assert torch.equal(model(x), last(x))


def test_strides_are_those_of_the_parameters_while_offloaded_and_restored():
    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(8, 16, 3), nn.Conv2d(16, 4, 3)).to(memory_format=torch.channels_last)

    model, x = made(), torch.randn(1, 8, 9, 9)
    expected = [one.stride() for one in made().parameters()]
    offloaded = offload(model, min_bytes=0)
    seen = []
    for layer in model:
        layer.register_forward_hook(lambda module, *_: seen.append(module.weight.stride()), prepend=True)
    with torch.no_grad():
        assert torch.equal(model(x), made()(x))
    assert seen == expected[::2]
    assert [one.stride() for one in model.parameters()] == expected
    offloaded.restore()
    assert [one.stride() for one in model.parameters()] == expected


def test_copies_and_conversions_of_offloaded_modules_are_errors():
    model = Model()
    offloaded = offload(model, min_bytes=0)
    for function in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"is offloaded: call restore\(\) before the module is copied or pickled"):
            function(model)
        with pytest.raises(TypeError, match=r"cannot be copied or pickled: call restore\(\)"):
            function(offloaded)
    for convert in (
        nn.Module.half,
        nn.Module.double,
        lambda one: one.to("meta"),
        lambda one: one.to_empty(device="cpu"),
    ):
        with pytest.raises(TypeError, match=r"is offloaded: call restore\(\) before the module is converted or moved"):
            convert(model)
    assert model.float().to("cpu") is model  # which changes nothing
    restored = copy.deepcopy(offloaded.restore())
    assert torch.equal(run(restored), run(Model()))


def test_an_error_in_forward_releases_the_unit():
    model = nn.Sequential(nn.Linear(64, 64))
    offloaded = offload(model)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(torch.ones(1, 3))
    assert repr(model[0].weight).startswith("Released")
    assert offloaded.restore() is model


def test_use_outside_of_forward_names_the_parameter():
    model = nn.Sequential(nn.Linear(64, 64))
    offload(model)
    with pytest.raises(RuntimeError, match=r"'0.weight' is offloaded.*units="):
        model[0].weight.sum()
    with pytest.raises(RuntimeError, match=r"'0.weight' is offloaded"):
        nn.functional.linear(torch.ones(1, 64), model[0].weight)


def test_offloaded_parameters_keep_their_shape_type_and_device():
    model = nn.Linear(64, 80).bfloat16()
    offload(model, min_bytes=0)
    weight = model.weight
    assert (weight.shape, weight.dtype, weight.device.type, weight.numel()) == ((80, 64), torch.bfloat16, "cpu", 5120)
    assert sum(one.numel() for one in model.parameters()) == 80 * 65


def test_a_state_dict_has_the_values():
    model = Model()
    offload(model, min_bytes=0)
    found, expected = model.state_dict(), Model().state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert list(model.layers[1].state_dict()) == list(Model().layers[1].state_dict())
    assert torch.equal(model.layers[1].state_dict()["linear1.weight"], expected["layers.1.linear1.weight"])


def test_loading_a_state_dict_is_an_error():
    model = Model()
    offload(model, min_bytes=0)
    with pytest.raises(RuntimeError, match=r"call restore\(\) before load_state_dict"):
        model.load_state_dict(Model().state_dict())


def test_kept_parameters_stay():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.LayerNorm(64))
    offloaded = offload(model, keep=lambda name, _: name.startswith("0."))
    assert torch.is_tensor(model[0].weight + 1)
    assert torch.is_tensor(model[1].bias + 1)  # smaller than min_bytes
    assert offloaded.raw_bytes == 64 * 64 * 4


@pytest.mark.parametrize("recomputed", [False, True])
def test_gradients_of_inputs_and_of_kept_parameters_are_right(recomputed):
    def model():
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))

    def gradients(one):
        x = torch.ones(1, 64, requires_grad=True)
        out = x
        for layer in one:
            out = checkpoint(layer, out, use_reentrant=False) if recomputed else layer(out)
        out.square().sum().backward()
        return x.grad, one[1].bias.grad

    expected = gradients(model())
    mine = model()
    offload(mine, min_bytes=1000)
    for found, other in zip(gradients(mine), expected, strict=True):
        assert torch.equal(found, other)
    assert mine[1].weight.grad is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"codec": "zip"}, ValueError, "zip"),
        ({"prefetch": -1}, ValueError, "prefetch is -1"),
        ({"device": "meta"}, ValueError, "only cpu and cuda"),
        ({"units": [nn.Linear(2, 2)]}, ValueError, "units contains a Linear that is not part"),
    ],
)
def test_bad_arguments_change_nothing(options, error, message):
    model, expected = Model(), run(Model())
    with pytest.raises(error, match=message):
        offload(model, **options)
    assert torch.equal(run(model), expected)


def test_units_inside_units_and_repeated_calls_are_errors():
    model = Model()
    with pytest.raises(ValueError, match=r"'layers.0.linear1' and 'layers.0', which share modules"):
        offload(model, units=[model.layers[0], model.layers[0].linear1])
    with pytest.raises(TypeError, match="not a torch"):
        offload(model.state_dict())
    offload(model)
    with pytest.raises(ValueError, match="is offloaded already"):
        offload(model)


def test_a_failure_while_encoding_restores_the_module():
    model, expected = Model(), run(Model())
    model.head.weight = nn.Parameter(torch.ones(300, 32, device="meta"))
    with pytest.raises(ValueError, match=r"head.weight is on the meta device"):
        offload(model, min_bytes=0)
    model.head.weight = model.embed.weight
    assert torch.equal(run(model), expected)


def test_a_module_cannot_be_restored_while_it_runs():
    model = nn.Sequential(nn.Linear(64, 64))
    offloaded = offload(model)
    model[0].register_forward_hook(lambda *_: offloaded.restore(), prepend=True)
    with pytest.raises(RuntimeError, match="while its forward runs"):
        model(torch.ones(1, 64))
