"""Group offloading of diffusers with a stream, simulated, with weights on the CPU in place of a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("diffusers", reason="diffusers is not installed")

from diffusers.hooks import apply_group_offloading, group_offloading  # noqa: E402
from narrowcast.integrations import diffusers as ours  # noqa: E402
from simulated_streams import simulate_encoded_tensors  # noqa: E402
from torch import nn  # noqa: E402

GPU = torch.device("cuda", 0)
WIDTH, LAYERS = 96, 10
OPTIONS = [{"offload_type": "leaf_level"}, {"offload_type": "block_level", "num_blocks_per_group": 1}]


class Layer(nn.Linear):
    """Its work goes to the current stream, with the weights that it has when forward is called."""

    ran = 0  # on the stream

    def forward(self, x):
        weight, bias, out = self.weight.data, self.bias.data, torch.empty(len(x), WIDTH)

        def run():
            out.copy_(nn.functional.linear(x, weight, bias).tanh())
            Layer.ran += 1

        torch.cuda.current_stream().enqueue(run)
        return out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.before = Layer(WIDTH, WIDTH)
        self.blocks = nn.ModuleList([Layer(WIDTH, WIDTH) for _ in range(LAYERS)])
        self.after = Layer(WIDTH, WIDTH)

    def forward(self, x, skip=()):
        x = self.before(x)
        for number, block in enumerate(self.blocks):
            x = x if number in skip else block(x)
        return self.after(x)


def expected(x, skip=(), model=None):
    model = model or Model()
    layers = [model.before, *(one for number, one in enumerate(model.blocks) if number not in skip), model.after]
    for layer in layers:
        x = nn.functional.linear(x, layer.weight.data, layer.bias.data).tanh()
    return x


@pytest.fixture
def streams(monkeypatch):
    found = simulate_encoded_tensors(monkeypatch)
    monkeypatch.setattr(Layer, "ran", 0)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(group_offloading, "send_to_device", lambda one, *_, **__: one)
    monkeypatch.setattr(ours, "supported_device", lambda device: torch.device("cpu"))
    return found


def is_released(tensor):
    return tensor.stride()[0] == 0


class Elsewhere:
    """The device of released weights, for diffusers, which compares it with that of the weights of a group."""

    def __init__(self, group):
        self.group = group

    def __eq__(self, other):
        return is_released(next(self.group.modules[0].parameters()))


def offloaded(model=None, **options):
    model = model or Model()
    apply_group_offloading(model, GPU, use_stream=True, **options)
    groups = ours.encode_groups(model)
    for _, hook in ours._hooks(model):
        hook.group.offload_device = Elsewhere(hook.group)
    return model, groups


@pytest.mark.parametrize("eager", ["copies", "model"])
@pytest.mark.parametrize("record_stream", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=["leaves", "blocks"])
def test_outputs_have_the_same_bits(streams, options, record_stream, eager):
    streams.main_is_late = eager == "copies"
    model, groups = offloaded(record_stream=record_stream, **options)
    x = torch.randn(5, WIDTH)
    outs = [model(x) for _ in range(3)]  # the first one learns the order
    streams.run()
    assert all(torch.equal(out, expected(x)) for out in outs)
    assert all(is_released(one) for one in model.parameters())
    assert 0 < groups.ratio < 1
    groups.check()


@pytest.mark.parametrize("options", OPTIONS, ids=["leaves", "blocks"])
def test_layers_that_the_first_forward_does_not_run_have_the_same_bits(streams, options):
    model, _ = offloaded(**options)
    x = torch.randn(5, WIDTH)
    skips = [{3, 4}, {}, {4}, {0, LAYERS - 1}, {}]
    outs = [model(x, skip) for skip in skips]
    streams.run()
    for out, skip in zip(outs, skips, strict=True):
        assert torch.equal(out, expected(x, skip))


@pytest.mark.parametrize("options", OPTIONS, ids=["leaves", "blocks"])
def test_weights_of_several_groups_stay_while_one_of_them_needs_them(streams, options):
    """Neighbours, of which one is fetched while the other one runs, and groups that run at different times."""

    def tied():
        model = Model()
        model.blocks[3].weight = model.blocks[2].weight
        model.blocks[8].bias = model.before.bias
        return model

    model, groups = offloaded(tied(), **options)
    x = torch.randn(5, WIDTH)
    outs = [model(x) for _ in range(3)]
    streams.run()
    assert all(torch.equal(out, expected(x, model=tied())) for out in outs)
    assert all(is_released(one) for one in model.parameters())
    assert groups.raw_bytes == sum(one.nbytes for one in tied().parameters())


def test_weights_are_fetched_while_the_model_runs(streams):
    """But no more than those of the layers that run, come next, and were last: the memory of all others is free."""
    streams.main_is_late = True
    model, groups = offloaded(offload_type="leaf_level")
    fetched = []
    for one in groups._groups:
        read = one.encoded.read
        one.encoded.read = lambda names, read=read, **to: (fetched.append(Layer.ran), read(names, **to))[1]
    x = torch.randn(5, WIDTH)
    for _ in range(3):
        fetched.clear()
        Layer.ran = 0
        model(x)
        streams.run()
    assert len(fetched) == LAYERS + 2  # the group of the model itself is empty
    assert max(number - ran for number, ran in enumerate(fetched)) == 2


def test_weights_stay_until_the_model_has_used_them(streams, monkeypatch):
    recorded = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: recorded.append((tensor, stream)))
    model, _ = offloaded(offload_type="leaf_level")
    model(torch.randn(5, WIDTH))
    streams.run()
    assert len(recorded) == len(list(model.parameters()))
    assert {stream for _, stream in recorded} == {streams.main}


def test_pinned_copies_are_freed(streams):
    model, _ = offloaded(offload_type="leaf_level")
    assert not any(hook.group.cpu_param_dict for _, hook in ours._hooks(model))


def test_loaded_groups_are_an_error(streams):
    model = Model()
    apply_group_offloading(model, GPU, use_stream=True, offload_type="leaf_level")
    model.blocks[2].weight = nn.Parameter(torch.empty(WIDTH, WIDTH, device="meta"))
    with pytest.raises(ValueError, match=r"'blocks.2' is loaded"):
        ours.encode_groups(model)
