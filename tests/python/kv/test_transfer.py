"""Transfers of KV blocks between hosts, on a simulated network."""

from __future__ import annotations

import pytest
from kv_hosts import LEASE, LossyNetwork, Network, content, pair, wanted
from narrowcast._kv.messages import Alive, Ask, Done, Free, Offer, Refusal


def fetch(decode, peer, request, *groups):
    decode.receiver.fetch(f"local {request}", request, peer, wanted(*groups))


def slots_are_free(*hosts):
    return all(len(side._free) == 4 for host in hosts for side in (host.sender, host.receiver))


def test_blocks_arrive_where_they_are_wanted():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    fetch(decode, peer, "a", [(3, 30), (1, 2), *((number, number) for number in range(4, 20))], [(0, 39)])
    network.run()
    assert decode.fetched["local a"].failed == []
    assert decode.coder.blocks[0, 30] == content(0, 3)
    assert decode.coder.blocks[0, 2] == content(0, 1)
    assert decode.coder.blocks[1, 39] == content(1, 0)
    assert all(decode.coder.blocks[0, number] == content(0, number) for number in range(4, 20))
    assert sum(content != b"" for content in decode.coder.blocks.values()) == 19
    assert prefill.released == ["a"]
    assert slots_are_free(prefill, decode)


def test_only_the_bytes_of_the_frames_are_read():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    fetch(decode, peer, "a", [(number, number) for number in range(8)], [])
    network.run()
    fetched = decode.fetched["local a"]
    assert fetched.wire_bytes == sum(1 + len(content(0, number).rstrip(b"\0")) for number in range(8))
    assert fetched.raw_bytes == 8 * 56


def test_a_request_without_blocks_is_released():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    fetch(decode, peer, "a")
    network.run()
    assert decode.fetched["local a"].failed == []
    assert prefill.released == ["a"]


def test_many_requests_share_few_slots():
    network, prefill, decode, peer = pair()
    names = [str(number) for number in range(20)]
    prefill.sender.expect(names)
    for name in names:
        fetch(decode, peer, name, [(int(name), int(name)), (int(name) + 20, int(name) + 20)], [])
    network.run()
    assert all(not decode.fetched[f"local {name}"].failed for name in names)
    assert all(decode.coder.blocks[0, number] == content(0, number) for number in range(40))
    assert sorted(prefill.released) == sorted(names)
    assert slots_are_free(prefill, decode)


def test_a_host_can_send_and_receive():
    network, prefill, decode, peer = pair()
    back = peer._replace(name="decode", endpoint=decode.endpoint)
    decode.coder.blocks[1, 7] = content(1, 99)
    prefill.sender.expect(["a"])
    decode.sender.expect(["b"])
    fetch(decode, peer, "a", [(3, 30)], [])
    fetch(prefill, back, "b", [], [(7, 8)])
    network.run()
    assert decode.coder.blocks[0, 30] == content(0, 3)
    assert prefill.coder.blocks[1, 8] == content(1, 99)


@pytest.mark.parametrize("kept", [False, True])
def test_blocks_of_other_requests_are_refused(kept):
    network, prefill, decode, peer = pair()
    if kept:
        prefill.sender.expect(["a"])
        prefill.sender.keep("a", 10)
        network.now = 11
    fetch(decode, peer, "a", [(3, 30)], [])
    network.run()
    assert decode.fetched["local a"].failed == [(0, 30)]
    assert prefill.released == ["a"] * kept
    assert slots_are_free(prefill, decode)


@pytest.mark.parametrize("blocks", [[99], [3] * 5])
def test_blocks_that_cannot_be_encoded_are_refused(blocks):
    network, prefill, _, _ = pair()
    prefill.sender.expect(["a"])
    prefill.sender.receive("decode", Ask(1, "a", 0, tuple(blocks)))
    prefill.sender.step()
    (answer,) = (message for source, message in network.sent if source == "prefill")
    assert isinstance(answer, Refusal)
    assert slots_are_free(prefill)


def test_a_part_is_not_lent_twice():
    network, prefill, _, _ = pair()
    prefill.sender.expect(["a"])
    for _ in range(2):
        prefill.sender.receive("decode", Ask(1, "a", 0, (1,)))
        prefill.sender.step()
    assert [type(message) for _, message in network.sent] == [Offer, Refusal]
    prefill.sender.receive("decode", Free(1))
    assert slots_are_free(prefill)


def test_a_corrupt_frame_fails_its_request_only():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a", "b"])
    decode.coder.corrupt = True
    fetch(decode, peer, "a", [(number, number) for number in range(20)], [])
    network.run()
    decode.coder.corrupt = False
    fetch(decode, peer, "b", [(1, 1)], [])
    network.run()
    assert decode.fetched["local a"].failed
    assert decode.fetched["local b"].failed == []
    assert sorted(prefill.released) == ["a", "b"]
    assert slots_are_free(prefill, decode)


@pytest.mark.parametrize(
    "offer", [Offer(0, 4, (5,)), Offer(0, 0, (5, 5)), Offer(0, 0, ()), Offer(0, 0, (0,)), Offer(0, 0, (65,))]
)
def test_offers_of_other_sizes_are_not_read(offer):
    network, _, decode, peer = pair()
    fetch(decode, peer, "a", [(3, 30)], [])
    decode.receiver.step()
    decode.receiver.receive("prefill", offer)
    assert network.reads == []
    assert decode.fetched["local a"].failed == [(0, 30)]
    assert slots_are_free(decode)


def test_offers_that_nobody_awaits_are_freed():
    network, _, decode, peer = pair()
    fetch(decode, peer, "a", [(3, 30)], [])
    decode.receiver.step()
    for part, source in ((9, "prefill"), (0, "other")):
        network.hosts["other"] = network.hosts["prefill"]
        decode.receiver.receive(source, Offer(part, 0, (5,)))
        assert network.sent[-1] == ("decode", Free(part))
    assert network.reads == []


def test_a_silent_sender_fails_the_request_after_the_lease():
    network, prefill, decode, peer = pair()
    fetch(decode, peer, "a", [(number, number) for number in range(40)], [])
    decode.receiver.step()
    prefill.inbox.clear()
    network.now = LEASE - 0.1
    decode.receiver.step()
    assert not decode.fetched
    network.now = LEASE
    decode.receiver.step()
    assert sorted(decode.fetched["local a"].failed) == [(0, number) for number in range(40)]
    assert slots_are_free(decode)


def test_a_sender_that_cannot_be_reached_fails_the_request_at_once(monkeypatch):
    _, _, decode, peer = pair()

    def send(peer, message):
        raise ConnectionError("no route")

    monkeypatch.setattr(decode.receiver, "_send", send)
    fetch(decode, peer, "a", [(3, 30)], [])
    decode.receiver.step()
    assert decode.fetched["local a"].failed == [(0, 30)]
    assert decode.lost == [peer]


def test_a_slot_that_is_still_written_is_not_used():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    network.advance = lambda: None
    fetch(decode, peer, "a", [(3, 30)], [])
    for _ in range(3):
        decode.step()
        prefill.step()
    ((_, read),) = network.reads
    network.now = LEASE
    decode.step()
    assert decode.fetched["local a"].failed == [(0, 30)]
    assert len(decode.receiver._free) == 3
    read["state"] = "ERR"
    decode.step()
    assert slots_are_free(decode)


def test_a_part_that_was_read_too_late_is_not_decoded():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    fetch(decode, peer, "a", [(3, 30)], [])
    decode.step()
    prefill.step()
    decode.step()
    network.advance()  # the read is done, but nobody knows when
    network.now = LEASE
    decode.step()
    assert decode.fetched["local a"].failed == [(0, 30)]
    assert decode.coder.blocks[0, 30] == b""


def test_a_part_is_read_once():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    fetch(decode, peer, "a", [(3, 30)], [])
    decode.receiver.step()
    for _ in range(2):
        decode.receiver.receive("prefill", Offer(0, 0, (5,)))
    assert len(network.reads) == 1
    assert network.sent[-1] == ("decode", Ask(0, "a", 0, (3,)))


def test_a_failure_takes_back_what_was_asked_for():
    network, prefill, decode, peer = pair()
    prefill.sender.expect(["a"])
    fetch(decode, peer, "a", [(number, number) for number in range(40)], [])
    decode.receiver.step()
    decode.receiver.receive("prefill", Refusal(0, "no"))
    prefill.step()
    assert all(source == "decode" for source, _ in network.sent)
    assert slots_are_free(prefill, decode)


def test_slots_of_readers_that_never_come_are_used_again():
    network, prefill, _, _ = pair()
    prefill.sender.expect(["a"])
    for part in range(6):
        prefill.sender.receive("decode", Ask(part, "a", 0, (part,)))
    while prefill.sender.step():
        pass
    assert [message.part for _, message in network.sent] == [0, 1, 2, 3]
    network.now = LEASE - 0.1
    prefill.sender.receive("decode", Ask(6, "a", 0, (6,)))
    network.now = LEASE
    while prefill.sender.step():
        pass
    assert [message.part for _, message in network.sent] == [0, 1, 2, 3, 6]  # those of 4 and 5 have given up


def test_requests_that_nobody_fetches_are_released():
    network, prefill, _, _ = pair()
    prefill.sender.expect(["a", "b", "c", "d"])
    prefill.sender.forget(["d"])
    for name in ("a", "b", "d"):
        prefill.sender.keep(name, 10)
    network.now = 5
    prefill.sender.receive("decode", Alive(("b", "c", "x")))
    network.now = 10
    prefill.sender.step()
    assert prefill.released == ["a"]
    network.now = 5 + LEASE
    prefill.sender.step()
    assert prefill.released == ["a", "b"]
    assert prefill.sender.is_active
    prefill.sender.receive("decode", Done("c"))
    prefill.sender.receive("decode", Done("c"))
    assert prefill.released == ["a", "b", "c"]
    assert not prefill.sender.is_active


@pytest.mark.parametrize("message", [Ask(0, "a", 0, (1,)), Alive(("a",))])
def test_blocks_are_kept_longer_but_not_shorter_for_a_receiver(message):
    network, prefill, _, _ = pair()
    prefill.sender.expect(["a", "b"])
    prefill.sender.keep("a", 10)
    prefill.sender.keep("b", 10 * LEASE)
    network.now = 9
    prefill.sender.receive("decode", message)
    prefill.sender.receive("decode", Alive(("b",)))
    network.now = 9 + LEASE - 1
    prefill.sender.step()
    assert prefill.released == []
    network.now = 9 + LEASE
    prefill.sender.step()
    assert prefill.released == ["a"]


def test_a_request_that_was_fetched_early_is_released_once():
    _, prefill, _, _ = pair()
    prefill.sender.expect(["a"])
    prefill.sender.receive("decode", Done("a"))
    prefill.sender.keep("a", 10)
    assert prefill.released == ["a"]
    assert not prefill.sender.is_active


def test_slots_smaller_than_a_block_are_an_error():
    _, _, decode, peer = pair()
    small = peer._replace(endpoint=type(peer.endpoint)("prefill", b"", 0, 0, "DRAM", 4, 32, LEASE))
    fetch(decode, small, "a", [(3, 30)], [])
    assert decode.fetched["local a"].failed == [(0, 30)]


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.15])
@pytest.mark.parametrize("seed", range(40))
def test_received_blocks_are_right_whatever_is_lost(seed, loss):
    network, prefill, decode, peer = pair(LossyNetwork(seed, loss))
    names = [str(number) for number in range(12)]
    prefill.sender.expect(names)
    for name in names:
        prefill.sender.keep(name, 60)
    wishes = {}
    for number, name in enumerate(names):
        pairs = [(block, block) for block in range(3 * number, 3 * number + network.random.randrange(1, 4))]
        wishes[name] = pairs
        fetch(decode, peer, name, pairs, pairs)
    for _ in range(100_000):
        for host in (prefill, decode):
            host.step()
        network.advance()
        if len(decode.fetched) == len(names) and not decode.receiver._stuck:
            break
    assert len(decode.fetched) == len(names)
    failed = 0
    for name, pairs in wishes.items():
        fetched = decode.fetched[f"local {name}"]
        failed += bool(fetched.failed)
        for group in range(2):
            for block, _ in pairs:
                assert (group, block) in fetched.failed or decode.coder.blocks[group, block] == content(group, block)
    assert not failed or loss
    network.loss = 0
    network.now += 3 * LEASE
    network.reads.clear()
    Network.run(network)
    assert slots_are_free(prefill, decode)
    assert sorted(prefill.released) == sorted(names)
