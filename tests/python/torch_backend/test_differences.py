"""Tensors that are exchanged as differences: errors, bits of ranks, checkpoints and failures."""

from __future__ import annotations

import itertools

import narrowcast
import numpy as np
import pytest
from narrowcast.codec import error_bound
from thread_ranks import on_ranks, succeed

torch = pytest.importorskip("torch", reason="torch is not installed")
from narrowcast.torch import Differences  # noqa: E402

ELEMS, STEPS = 3_001, 50
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-53}


@pytest.fixture(autouse=True)
def single_threaded():
    """Ranks are threads already."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights_of_steps(rank, steps, dtype, elems=ELEMS):
    """Weights of about 0.02 in fp32, which an optimizer changes by up to 1e-4 in each step, as ranks with this type
    hold them."""
    random = torch.Generator().manual_seed(rank)
    weights = torch.randn(elems, generator=random) * 0.02
    drift = torch.randn(elems, generator=random)
    for _ in range(steps):
        weights += 1e-4 * torch.tanh(drift + torch.randn(elems, generator=random))
        yield weights.to(dtype, copy=True)


def relative(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def gather(comm, differences, values, out=None):
    return differences.all_gather(comm, "weights", values, out)


def broadcast(comm, differences, values, out=None):
    return differences.broadcast(comm, "weights", values, out, root=1)


def sent_by_all(ranks, steps, dtype):
    """What all ranks would have after each step without a loss."""
    return [torch.cat(parts) for parts in zip(*(weights_of_steps(r, steps, dtype) for r in range(ranks)), strict=True)]


EXCHANGES = {
    "all_gather": (gather, sent_by_all),
    "broadcast": (broadcast, lambda ranks, steps, dtype: list(weights_of_steps(1, steps, dtype))),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize(
    ("ranks", "dtype", "codec"),
    [
        (2, torch.float32, "int4:group=32"),
        (3, torch.bfloat16, "int4:group=32"),
        (4, torch.bfloat16, "int8"),
        (2, torch.float16, "int2:group=32"),
        (2, torch.bfloat16, "nvfp4"),
        (2, torch.float64, "abs:bound=1e-6"),
    ],
)
def test_every_step_is_within_the_bound_and_ranks_have_the_same_bits(exchange, ranks, dtype, codec):
    call, expected_of = EXCHANGES[exchange]

    def body(comm):
        differences = Differences(f"{codec}!")
        return [call(comm, differences, x).clone() for x in weights_of_steps(comm.rank, STEPS, dtype)]

    found = succeed(on_ranks(ranks, body))
    expected = expected_of(ranks, STEPS, dtype)
    assert torch.equal(found[0][0], expected[0])  # the first call is exact
    rounding = ROUNDING[dtype]
    share = error_bound(codec, dtype, 1)
    change = max(float((after - before).abs().max()) for before, after in itertools.pairwise(expected))
    settled = (share * change + 2 * rounding * float(expected[-1].abs().max())) / (1 - share - rounding)
    for step, parts in enumerate(zip(*found, strict=True)):
        assert all(torch.equal(one, parts[0]) for one in parts), step
        if step:
            values, before = expected[step].double(), found[0][step - 1].double()
            largest = float((values - before).abs().max()) * (1 + rounding)
            bound = error_bound(codec, dtype, largest) + rounding * largest
            bound += rounding * (float(values.abs().max()) + bound)
            error = float((parts[0].double() - values).abs().max())
            assert error <= bound, step
            assert error <= settled or not codec.startswith("int"), step
    errors = [relative(*pair) for pair in zip(found[0], expected, strict=True)]
    assert 0 < np.mean(errors[40:]) <= 1.2 * np.mean(errors[5:15])


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 300), (torch.bfloat16, 200)])
def test_four_bits_of_differences_are_much_better_than_four_bits_of_weights(dtype, factor):
    codec = "int4:group=32!"

    def body(comm):
        differences, errors = Differences(codec), []
        for x in weights_of_steps(0, STEPS, dtype):
            direct = comm.broadcast(x, torch.empty_like(x), codec=codec)
            errors.append((relative(direct, x), relative(differences.broadcast(comm, "w", x), x)))
        return errors[-1]

    for direct, as_difference in succeed(on_ranks(2, body)):
        assert direct > 0.05
        assert as_difference < direct / factor


def test_a_first_call_can_have_a_codec_of_its_own():
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0))

    def body(comm):
        differences = Differences("int4!", first="int8!")
        return [differences.broadcast(comm, "w", values).clone() for _ in range(8)]

    one, other = succeed(on_ranks(2, body))
    assert all(map(torch.equal, one, other))
    errors = [relative(found, values) for found in one]
    assert 1e-3 < errors[0] < 1e-2
    assert all(after < before / 4 or after < 1e-7 for before, after in itertools.pairwise(errors))  # values that stay


def test_a_loaded_state_continues_with_the_same_bits():
    def body(comm):
        steps = list(weights_of_steps(comm.rank, 4, torch.bfloat16))
        one, other = Differences("int4!"), Differences("int4!")
        for x in steps[:2]:
            gather(comm, one, x)
        other.load_state_dict(one.state_dict())
        continued = [gather(comm, one, x).clone() for x in steps[2:]]
        assert not torch.equal(continued[-1], gather(comm, Differences("int4!"), steps[3]))  # which is exact
        before = comm.counters().operations["all_gather"].calls
        assert all(torch.equal(gather(comm, other, x), y) for x, y in zip(steps[2:], continued, strict=True))
        return comm.counters().operations["all_gather"].calls - before

    assert succeed(on_ranks(2, body)) == [3, 3]  # one compares the references


@pytest.mark.parametrize("fault", ["another bit", "another size", "missing"])
def test_references_that_differ_after_a_load_are_replaced(fault):
    def body(comm):
        first, second, third = weights_of_steps(comm.rank, 3, torch.bfloat16)
        differences = Differences("int4!")
        gather(comm, differences, first)
        state = {name: values.clone() for name, values in differences.state_dict().items()}
        if comm.rank == 1 and fault == "another bit":
            state["weights"].view(torch.int16)[17] ^= 1
        elif comm.rank == 1:
            state = {"weights": state["weights"][1:]} if fault == "another size" else {}
        differences.load_state_dict(state)
        return gather(comm, differences, second).clone(), gather(comm, differences, third).clone()

    results = succeed(on_ranks(3, body))
    expected = sent_by_all(3, 3, torch.bfloat16)
    for second, third in results:
        assert torch.equal(second, expected[1])  # as a first call
        assert torch.equal(third, results[0][1])
        assert not torch.equal(third, expected[2])


def test_a_reference_that_changed_on_one_rank_is_found_on_the_next_communicator():
    first, second, third, fourth = (one.clone() for one in weights_of_steps(0, 4, torch.bfloat16))
    handles = [Differences("int4!") for _ in range(2)]

    def begin(comm):
        differences = handles[comm.rank]
        broadcast(comm, differences, first)
        if comm.rank == 0:
            differences.state_dict()["weights"][5] += 1
        return broadcast(comm, differences, second).clone()

    one, other = succeed(on_ranks(2, begin))
    assert (one != other).nonzero().tolist() == [[5]]  # what the other tests would notice
    assert all(torch.equal(one, third) for one in succeed(on_ranks(2, lambda c: broadcast(c, handles[c.rank], third))))
    one, other = succeed(on_ranks(2, lambda c: broadcast(c, handles[c.rank], fourth)))
    assert torch.equal(one, other)


@pytest.mark.parametrize("codec", ["int8:group=32!", "mxfp8!"])
def test_values_that_are_not_finite_arrive_and_the_next_call_repairs_them(codec):
    clean = next(weights_of_steps(0, 1, torch.bfloat16))
    broken = clean.clone()
    broken[100], broken[200] = torch.nan, torch.inf

    def body(comm):
        differences = Differences(codec)
        for x in (clean, broken, clean, clean, clean):
            broadcast(comm, differences, x)
            yield differences.state_dict()["weights"].clone()

    for steps in succeed(on_ranks(2, lambda comm: list(body(comm)))):
        assert steps[1][100].isnan()
        assert not steps[1][200].isfinite()
        finite = torch.ones_like(clean, dtype=torch.bool)
        for place in (100, 200):
            finite[place // 32 * 32 : place // 32 * 32 + 32] = False
        assert torch.allclose(steps[1][finite], clean[finite], atol=1e-3)
        assert steps[2].isfinite().all()
        assert relative(steps[-1], clean) < 1e-3


def test_the_result_is_the_reference_or_is_copied_to_out():
    def body(comm):
        differences, rows = Differences("int4!"), 3_000
        a, b = (x.view(-1, 7) for x in weights_of_steps(comm.rank, 2, torch.float32, rows * 7))
        result = gather(comm, differences, a)
        assert result.shape == (rows * comm.ranks, 7)
        assert result.data_ptr() == differences.state_dict()["weights"].data_ptr()
        whole = torch.zeros(rows * comm.ranks, 7)
        own = whole[rows * comm.rank : rows * (comm.rank + 1)]
        own.copy_(b)
        assert gather(comm, differences, own, whole) is whole  # in place
        assert torch.equal(whole, result)  # which the second call has updated
        assert not torch.equal(own, b)
        with torch.inference_mode():
            gather(comm, differences, b, out := torch.empty_like(whole))
            begun = differences.broadcast(comm, "begun in inference mode", b)
        assert torch.equal(out, result)
        assert not begun.is_inference()
        gather(comm, other := Differences("int4!"), a, whole)
        whole.zero_()  # is a copy from the first call on
        assert relative(gather(comm, other, b), result) < 1e-3
        before = b.clone()
        assert differences.broadcast(comm, "b", b.t(), root=1).shape == (7, rows)
        assert torch.equal(b, before)
        assert differences.broadcast(comm, "scalar", torch.tensor(3.5)).shape == ()

    succeed(on_ranks(2, body))


def test_integers_and_flags_are_exact_and_have_no_reference():
    def body(comm):
        differences = Differences("int4!")
        for step in range(3):
            counts = torch.arange(100) * (step + 1)
            assert torch.equal(differences.broadcast(comm, "counts", counts), counts)
            assert torch.equal(gather(comm, differences, counts > 50), (counts > 50).repeat(comm.ranks))
        assert not differences.state_dict()

    succeed(on_ranks(2, body))


def test_a_tensor_that_changes_its_size_begins_again():
    def body(comm):
        differences = Differences("int4!")
        for x in (torch.ones(20_000), torch.randn(10_000), torch.randn(10_000).bfloat16()):
            assert torch.equal(differences.broadcast(comm, "w", x), comm.broadcast(x.clone()))

    succeed(on_ranks(2, body))


def test_a_reset_sends_everything_again():
    def body(comm):
        differences = Differences("int4!")
        for x in weights_of_steps(0, 3, torch.float32):
            differences.reset("w" if comm.rank else None)
            assert torch.equal(differences.broadcast(comm, "w", x), x)

    succeed(on_ranks(2, body))


def test_a_call_that_fails_forgets_the_reference():
    def body(comm):
        first, second = weights_of_steps(comm.rank, 2, torch.float32, 20_000)
        differences = Differences("int4!")
        gather(comm, differences, first)
        differences.codec = "int8:group=3"
        with pytest.raises(ValueError, match="group"):
            gather(comm, differences, second)
        differences.codec = "int4!"
        return torch.equal(gather(comm, differences, second), comm.all_gather(second))

    assert succeed(on_ranks(2, body)) == [True, True]


def test_ranks_that_disagree_fail():
    values = torch.ones(100)

    def names(comm):
        with pytest.raises(narrowcast.MismatchError, match="not all of 'a'" if comm.rank else "not all of 'b'"):
            Differences("int4!").broadcast(comm, "a" if comm.rank else "b", values)

    def resets(comm):
        differences = Differences("int4!")
        differences.broadcast(comm, "a", values)
        if comm.rank:
            differences.reset()
        with pytest.raises(narrowcast.MismatchError, match="all_gather"):
            differences.broadcast(comm, "a", values)

    for disagree in (names, resets):
        succeed(on_ranks(2, disagree))


def test_wrong_uses_are_rejected():
    for codecs in ({"codec": "int9"}, {"codec": "int8", "first": "int9"}):
        with pytest.raises(ValueError, match="int9"):
            Differences(**codecs)

    def body(comm):
        with pytest.raises(ValueError, match="group"), narrowcast.group():
            gather(comm, Differences("int4"), torch.ones(10))
        with pytest.raises(ValueError, match="19"):
            gather(comm, Differences("int4"), torch.ones(10), torch.ones(19))

    succeed(on_ranks(2, body))
