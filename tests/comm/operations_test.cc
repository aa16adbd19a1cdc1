// Compares every operation with a serial computation, for all value types and for several codecs, numbers of ranks and
// counts, in place and not.
#include <map>
#include <span>
#include <string>
#include <utility>

#include "support/codec_table.h"
#include "support/oracle.h"
#include "support/ranks.h"
#include "support/sanitized.h"
#include "support/tolerance.h"

namespace narrowcast::testing {
namespace {

constexpr unsigned char poison = 0xa5;

// As random_values. The values of a type are kept until those of another one are needed: the tests use them with many
// codecs, and making them takes longer than the calls.
const Bytes& kept_random_values(ncast_dtype dtype, size_t elems, uint64_t seed) {
  thread_local std::map<std::pair<size_t, uint64_t>, Bytes> values;
  thread_local ncast_dtype dtype_of_values = dtype;
  if (dtype != dtype_of_values) values.clear();
  dtype_of_values = dtype;
  const auto [found, is_new] = values.try_emplace({elems, seed});
  if (is_new) found->second = random_values(dtype, elems, seed);
  return found->second;
}

struct Case {
  ncast_dtype dtype;
  ncast_codec codec;
  size_t count;
  int rank;
  int ranks;
  ncast_comm* comm;

  size_t piece_bytes() const { return count * ncast_dtype_bytes(dtype); }
  const Bytes& input_of(int sender, size_t pieces) const {
    return kept_random_values(dtype, count * pieces, static_cast<uint64_t>(sender * 100 + dtype) * 1000 + count % 1000);
  }
  std::vector<Bytes> inputs(size_t pieces) const {
    std::vector<Bytes> all;
    for (int sender = 0; sender < ranks; ++sender) all.push_back(input_of(sender, pieces));
    return all;
  }
  int root() const { return static_cast<int>(count) % ranks; }
  ncast_codec forced_codec() const { return tests::forced(codec); }
  bool is_root() const { return rank == root(); }
  size_t own_offset() const { return static_cast<size_t>(rank) * piece_bytes(); }
};

// Whether moved values arrived: bit for bit, or within the bound of the codec.
bool is_moved(const Case& c, const Bytes& found, const Bytes& sent) {
  const ncast_codec_type* const type = tests::bounded_type_of(c.codec, c.dtype);
  return type == nullptr ? found == sent : is_near(c.dtype, found, moved_values(c.codec, *type, sent));
}

// Whether values are the reduction of the ranks' inputs: rounded once, or within the bound of the codec.
bool is_reduction(const Case& c, ncast_operation operation, const Bytes& found, ncast_redop op,
                  const std::vector<Bytes>& inputs) {
  const ncast_codec_type* const type = tests::bounded_type_of(c.codec, c.dtype);
  return type == nullptr ? equal_numbers(c.dtype, found, reduced(c.dtype, op, inputs))
                         : is_near(c.dtype, found, reduced_values(operation, c.codec, *type, op, inputs));
}

// Whether all ranks hold the same bits.
bool is_same_on_all_ranks(const Case& c, const Bytes& own) {
  Bytes all(own.size() * static_cast<size_t>(c.ranks));
  EXPECT_OK(ncast_all_gather(own.data(), all.data(), own.size(), NCAST_UINT8, NCAST_CODEC_RAW, c.comm, nullptr));
  for (int peer = 0; peer < c.ranks; ++peer)
    if (part_of(all, static_cast<size_t>(peer) * own.size(), own.size()) != own) return false;
  return true;
}

void check_broadcast(const Case& c) {
  const int root = c.root();
  const Bytes expected = c.input_of(root, 1);
  Bytes received(c.piece_bytes(), poison);
  EXPECT_OK(ncast_broadcast(c.rank == root ? expected.data() : nullptr, received.data(), c.count, c.dtype, root,
                            c.forced_codec(), c.comm, nullptr));
  EXPECT(is_moved(c, received, expected));
  EXPECT(is_same_on_all_ranks(c, received));
  Bytes in_place = c.rank == root ? expected : Bytes(c.piece_bytes(), poison);
  EXPECT_OK(
      ncast_broadcast(in_place.data(), in_place.data(), c.count, c.dtype, root, c.forced_codec(), c.comm, nullptr));
  EXPECT(in_place == received);
}

void check_reduce(const Case& c, ncast_redop op) {
  const Bytes own = c.input_of(c.rank, 1);
  Bytes received(own.size(), poison);
  EXPECT_OK(ncast_reduce(own.data(), c.is_root() ? received.data() : nullptr, c.count, c.dtype, op, c.root(),
                         c.forced_codec(), c.comm, nullptr));
  if (c.is_root()) EXPECT(is_reduction(c, NCAST_OP_REDUCE, received, op, c.inputs(1)));
  // In place. Ranks other than the root may pass a buffer, which does not change.
  Bytes in_place = own;
  EXPECT_OK(ncast_reduce(in_place.data(), in_place.data(), c.count, c.dtype, op, c.root(), c.forced_codec(), c.comm,
                         nullptr));
  EXPECT(in_place == (c.is_root() ? received : own));
}

void check_gather(const Case& c) {
  const Bytes own = c.input_of(c.rank, 1);
  const Bytes expected = concatenated(c.inputs(1));
  Bytes received(expected.size(), poison);
  EXPECT_OK(ncast_gather(own.data(), c.is_root() ? received.data() : nullptr, c.count, c.dtype, c.root(),
                         c.forced_codec(), c.comm, nullptr));
  if (c.is_root())
    EXPECT(is_moved(c, received, expected));
  else
    EXPECT(received == Bytes(expected.size(), poison));
  Bytes in_place(expected.size(), poison);
  std::copy(own.begin(), own.end(), in_place.begin() + static_cast<std::ptrdiff_t>(c.own_offset()));
  const Bytes before = in_place;
  EXPECT_OK(ncast_gather(in_place.data() + c.own_offset(), in_place.data(), c.count, c.dtype, c.root(),
                         c.forced_codec(), c.comm, nullptr));
  EXPECT(in_place == (c.is_root() ? received : before));
}

void check_scatter(const Case& c) {
  const Bytes whole = c.input_of(c.root(), static_cast<size_t>(c.ranks));
  const Bytes expected = part_of(whole, c.own_offset(), c.piece_bytes());
  Bytes received(expected.size(), poison);
  EXPECT_OK(ncast_scatter(c.is_root() ? whole.data() : nullptr, received.data(), c.count, c.dtype, c.root(),
                          c.forced_codec(), c.comm, nullptr));
  EXPECT(is_moved(c, received, expected));
  // In place. The values of the root do not change.
  Bytes in_place = c.is_root() ? whole : Bytes(whole.size(), poison);
  EXPECT_OK(ncast_scatter(in_place.data(), in_place.data() + c.own_offset(), c.count, c.dtype, c.root(),
                          c.forced_codec(), c.comm, nullptr));
  EXPECT(part_of(in_place, c.own_offset(), c.piece_bytes()) == received);
  if (c.is_root()) EXPECT(in_place == whole);
}

void check_all_gather(const Case& c) {
  const Bytes own = c.input_of(c.rank, 1);
  const Bytes expected = concatenated(c.inputs(1));
  Bytes received(expected.size(), poison);
  EXPECT_OK(ncast_all_gather(own.data(), received.data(), c.count, c.dtype, c.forced_codec(), c.comm, nullptr));
  EXPECT(is_moved(c, received, expected));
  EXPECT(is_same_on_all_ranks(c, received));
  Bytes in_place(expected.size(), poison);
  std::copy(own.begin(), own.end(), in_place.begin() + static_cast<std::ptrdiff_t>(c.own_offset()));
  EXPECT_OK(ncast_all_gather(in_place.data() + c.own_offset(), in_place.data(), c.count, c.dtype, c.forced_codec(),
                             c.comm, nullptr));
  EXPECT(in_place == received);
}

void check_all_to_all(const Case& c) {
  const auto pieces = static_cast<size_t>(c.ranks);
  const Bytes own = c.input_of(c.rank, pieces);
  std::vector<Bytes> parts;
  for (const Bytes& input : c.inputs(pieces)) parts.push_back(part_of(input, c.own_offset(), c.piece_bytes()));
  Bytes received(own.size(), poison);
  EXPECT_OK(ncast_all_to_all(own.data(), received.data(), c.count, c.dtype, c.forced_codec(), c.comm, nullptr));
  EXPECT(is_moved(c, received, concatenated(parts)));
}

// The count of all_to_all_v from one rank to another. Some are zero.
size_t count_between(const Case& c, int from, int to) {
  return (from + 2 * to) % 3 == 0 ? 0 : c.count + static_cast<size_t>(7 * from + 3 * to);
}

const Bytes& values_between(const Case& c, int from, int to) {
  return kept_random_values(c.dtype, count_between(c, from, to),
                            static_cast<uint64_t>(from * 100 + to) * 1000 + c.count);
}

void check_all_to_all_v(const Case& c) {
  const size_t value_bytes = ncast_dtype_bytes(c.dtype);
  std::vector<uint64_t> send_counts, send_offsets, recv_counts, recv_offsets;
  Bytes sent;
  Bytes expected;
  for (int peer = 0; peer < c.ranks; ++peer) {
    // Leave gaps between the ranges, and receive them in reverse order.
    const Bytes own = values_between(c, c.rank, peer);
    sent.resize(sent.size() + static_cast<size_t>(peer) * value_bytes, poison);
    send_counts.push_back(count_between(c, c.rank, peer));
    send_offsets.push_back(own.empty() ? ~uint64_t{0} : sent.size() / value_bytes);
    sent.insert(sent.end(), own.begin(), own.end());
  }
  for (int i = 0; i < c.ranks; ++i) {
    const int peer = c.ranks - 1 - i;
    expected.resize(expected.size() + static_cast<size_t>(i % 2) * value_bytes, poison);
    recv_offsets.insert(recv_offsets.begin(), expected.size() / value_bytes);
    recv_counts.insert(recv_counts.begin(), count_between(c, peer, c.rank));
    const Bytes theirs = values_between(c, peer, c.rank);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  Bytes received(expected.size(), poison);
  EXPECT_OK(ncast_all_to_all_v(sent.data(), send_counts.data(), send_offsets.data(), received.data(),
                               recv_counts.data(), recv_offsets.data(), c.dtype, c.forced_codec(), c.comm, nullptr));
  for (int peer = 0; peer < c.ranks; ++peer) {
    const auto from = static_cast<size_t>(peer);
    const Bytes part = part_of(received, recv_offsets[from] * value_bytes, recv_counts[from] * value_bytes);
    EXPECT(is_moved(c, part, values_between(c, peer, c.rank)));
    std::copy(part.begin(), part.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(recv_offsets[from] * value_bytes));
  }
  EXPECT(received == expected);  // nothing between the parts is written
}

void check_reduce_scatter(const Case& c, ncast_redop op) {
  const auto pieces = static_cast<size_t>(c.ranks);
  const Bytes own = c.input_of(c.rank, pieces);
  std::vector<Bytes> parts;
  for (const Bytes& input : c.inputs(pieces)) parts.push_back(part_of(input, c.own_offset(), c.piece_bytes()));
  Bytes received(c.piece_bytes(), poison);
  EXPECT_OK(ncast_reduce_scatter(own.data(), received.data(), c.count, c.dtype, op, c.forced_codec(), c.comm, nullptr));
  EXPECT(is_reduction(c, NCAST_OP_REDUCE_SCATTER, received, op, parts));
  Bytes in_place = own;
  EXPECT_OK(ncast_reduce_scatter(in_place.data(), in_place.data() + c.own_offset(), c.count, c.dtype, op,
                                 c.forced_codec(), c.comm, nullptr));
  EXPECT(part_of(in_place, c.own_offset(), c.piece_bytes()) == received);
}

void check_all_reduce(const Case& c, ncast_redop op) {
  const Bytes own = c.input_of(c.rank, 1);
  Bytes received(own.size(), poison);
  EXPECT_OK(ncast_all_reduce(own.data(), received.data(), c.count, c.dtype, op, c.forced_codec(), c.comm, nullptr));
  EXPECT(is_reduction(c, NCAST_OP_ALL_REDUCE, received, op, c.inputs(1)));
  EXPECT(is_same_on_all_ranks(c, received));
  Bytes in_place = own;
  EXPECT_OK(
      ncast_all_reduce(in_place.data(), in_place.data(), c.count, c.dtype, op, c.forced_codec(), c.comm, nullptr));
  EXPECT(in_place == received);
}

void check_send_recv(const Case& c) {
  // Every rank sends to the next one and receives from the previous one, in a group. With one rank, to itself.
  const int next = (c.rank + 1) % c.ranks;
  const int previous = (c.rank + c.ranks - 1) % c.ranks;
  const Bytes own = c.input_of(c.rank, 1);
  Bytes received(own.size(), poison);
  EXPECT_OK(ncast_group_start());
  EXPECT_OK(ncast_send(own.data(), c.count, c.dtype, next, c.forced_codec(), c.comm, nullptr));
  EXPECT_OK(ncast_recv(received.data(), c.count, c.dtype, previous, c.forced_codec(), c.comm, nullptr));
  EXPECT_OK(ncast_group_end());
  EXPECT(is_moved(c, received, c.input_of(previous, 1)));
}

constexpr ncast_redop all_redops[] = {NCAST_SUM, NCAST_AVG, NCAST_MIN, NCAST_MAX, NCAST_PROD};

void check_every_operation(const Case& c) {
  check_broadcast(c);
  check_gather(c);
  check_scatter(c);
  check_all_gather(c);
  check_all_to_all(c);
  check_all_to_all_v(c);
  check_send_recv(c);
  // Test all reductions on few ranks. With more ranks only the order of accumulation is of interest.
  for (const ncast_redop op : std::span(all_redops).first(c.ranks <= 3 ? 5 : 1)) {
    if (op != NCAST_SUM && op != NCAST_AVG && tests::bounded_type_of(c.codec, c.dtype) != nullptr) continue;
    check_reduce(c, op);
    check_reduce_scatter(c, op);
    check_all_reduce(c, op);
  }
}

void check_ranks(int ranks, const std::vector<size_t>& counts) {
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks, small_slots);
    for (const ncast_dtype dtype : all_dtypes) {
      int turn = 0;
      for (const ncast_codec codec : tests::repeatable_variants()) {
        // Bounded codecs take turns, so that each is tested with one number of ranks. Without this type they are raw.
        const bool is_bounded = tests::info_of(codec).exact == 0;
        if (is_bounded && (turn++ % 5 != ranks % 5 || tests::bounded_type_of(codec, dtype) == nullptr)) continue;
        for (const size_t count : counts) check_every_operation({dtype, codec, count, rank, ranks, comm});
      }
    }
  });
}

// Sanitizers would take a minute for each of these with all counts.
using Counts = std::vector<size_t>;
const Counts counts_of_few = tests::sanitized ? Counts{0, 5001} : Counts{0, 1, 7, 9001};
const Counts counts_of_many = tests::sanitized ? Counts{13} : Counts{1, 13, 3001};
TEST_CASE("every operation matches a serial computation on 1 rank") { check_ranks(1, counts_of_few); }
TEST_CASE("every operation matches a serial computation on 2 ranks") { check_ranks(2, counts_of_few); }
TEST_CASE("every operation matches a serial computation on 3 ranks") { check_ranks(3, counts_of_few); }
TEST_CASE("every operation matches a serial computation on 4 ranks") { check_ranks(4, counts_of_many); }
TEST_CASE("every operation matches a serial computation on 5 ranks") { check_ranks(5, counts_of_many); }

TEST_CASE("large transfers go through default slots in many chunks") {
  constexpr int ranks = 3;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW, NCAST_CODEC_DENSE, NCAST_CODEC_INT6}) {
      const Case c = {NCAST_BFLOAT16, codec, 400009, rank, ranks, comm};
      check_reduce(c, NCAST_SUM);
      check_gather(c);
      check_scatter(c);
      check_all_gather(c);
      check_all_to_all_v(c);
      check_all_reduce(c, NCAST_SUM);
    }
  });
}

TEST_CASE("every operation matches a serial computation on 16 ranks") {
  constexpr int ranks = 16;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW, NCAST_CODEC_DENSE, NCAST_CODEC_E4M3})
      check_every_operation({NCAST_BFLOAT16, codec, 2101, rank, ranks, comm});
  });
}

TEST_CASE("ranks may be threads") {
  constexpr int ranks = 3;
  const ncast_unique_id id = new_id();
  run_threads(ranks, [&](int rank) {
    Comm comm(id, rank, ranks, small_slots);
    for (const ncast_codec codec :
         {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW, NCAST_CODEC_DENSE, NCAST_CODEC_INT4, NCAST_CODEC_AUTO})
      check_every_operation({NCAST_BFLOAT16, codec, 4001, rank, ranks, comm});
  });
}

TEST_CASE("the bits of a reduction do not depend on the operation, the exact codec or the chunks") {
  constexpr int ranks = 3;
  constexpr size_t count = 20011;
  const ncast_unique_id ids[] = {new_id(), new_id()};
  run_processes(ranks, [&](int rank) {
    Comm small(ids[0], rank, ranks, small_slots);
    Comm large(ids[1], rank, ranks);
    const Bytes own = random_values(NCAST_BFLOAT16, count, static_cast<uint64_t>(rank) + 77);
    std::vector<ncast_codec> codecs = {NCAST_CODEC_AUTO};
    for (const ncast_codec_info& info : tests::all_codecs())
      if (info.exact != 0) codecs.push_back(tests::forced(info.codec));
    std::vector<Bytes> results;
    for (ncast_comm* comm : {static_cast<ncast_comm*>(small), static_cast<ncast_comm*>(large)}) {
      for (const ncast_codec codec : codecs) {
        results.emplace_back(own.size());
        EXPECT_OK(ncast_all_reduce(own.data(), results.back().data(), count, NCAST_BFLOAT16, NCAST_SUM, codec, comm,
                                   nullptr));
        // reduce yields the same bits as all_reduce.
        for (int root = 0; root < ranks; ++root) {
          Bytes at_root(own.size(), poison);
          EXPECT_OK(
              ncast_reduce(own.data(), at_root.data(), count, NCAST_BFLOAT16, NCAST_SUM, root, codec, comm, nullptr));
          if (rank == root) results.push_back(at_root);
        }
      }
    }
    for (const Bytes& result : results) EXPECT(result == results[0]);
    // The same on every rank.
    Bytes all(results[0].size() * ranks);
    EXPECT_OK(ncast_all_gather(results[0].data(), all.data(), count, NCAST_BFLOAT16, NCAST_CODEC_RAW, small, nullptr));
    for (size_t r = 0; r < ranks; ++r) EXPECT(part_of(all, r * results[0].size(), results[0].size()) == results[0]);
  });
}

TEST_CASE("counters count the bytes that this rank sent") {
  constexpr int ranks = 3;
  constexpr size_t count = 3000;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    const Bytes own = random_values(NCAST_BFLOAT16, count, 5);
    Bytes all(own.size() * ranks);
    ncast_comm_counters counters;
    counters.struct_bytes = sizeof counters;
    EXPECT_OK(ncast_all_gather(own.data(), all.data(), count, NCAST_BFLOAT16, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_comm_get_counters(comm, &counters));
    EXPECT(counters.raw_bytes == 2 * own.size());
    EXPECT(counters.wire_bytes == counters.raw_bytes);
    EXPECT(counters.calls == 1);
    EXPECT(counters.scratch_bytes > 0);
    EXPECT(counters.scratch_bytes <= 4 << 20);
    EXPECT_OK(ncast_all_gather(own.data(), all.data(), count, NCAST_BFLOAT16, tests::forced(NCAST_CODEC_WINDOW), comm,
                               nullptr));
    const uint64_t wire_before = counters.wire_bytes;
    EXPECT_OK(ncast_comm_get_counters(comm, &counters));
    EXPECT(counters.raw_bytes == 4 * own.size());
    EXPECT(counters.wire_bytes - wire_before < 2 * own.size());
    EXPECT(counters.calls == 2);
    // Without costs this backend sends raw values, whatever a call allows.
    for (const ncast_codec allowed : {NCAST_CODEC_AUTO, NCAST_CODEC_WINDOW}) {
      const uint64_t wire_before_raw = counters.wire_bytes;
      EXPECT_OK(ncast_all_gather(own.data(), all.data(), count, NCAST_BFLOAT16, allowed, comm, nullptr));
      EXPECT_OK(ncast_comm_get_counters(comm, &counters));
      EXPECT(counters.wire_bytes - wire_before_raw == 2 * own.size());
    }
    const uint64_t wire_gathered = counters.wire_bytes;
    EXPECT_OK(ncast_broadcast(own.data(), all.data(), count, NCAST_BFLOAT16, 0, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_comm_get_counters(comm, &counters));
    ncast_operation_counters by_operation[NCAST_OPERATIONS];
    EXPECT_OK(ncast_comm_get_operation_counters(comm, by_operation, NCAST_OPERATIONS));
    const auto is = [&](ncast_operation operation, uint64_t calls, uint64_t raw_bytes, uint64_t wire_bytes) {
      const ncast_operation_counters& of = by_operation[operation];
      return of.calls == calls && of.raw_bytes == raw_bytes && of.wire_bytes == wire_bytes;
    };
    const uint64_t sent = rank == 0 ? 2 * own.size() : 0;
    EXPECT(is(NCAST_OP_ALL_GATHER, 4, 8 * own.size(), wire_gathered));
    EXPECT(is(NCAST_OP_BROADCAST, 1, sent, sent));
    EXPECT(is(NCAST_OP_SEND, 0, 0, 0));
    EXPECT(counters.calls == 5);
    EXPECT(counters.raw_bytes == 8 * own.size() + sent);
    EXPECT(counters.wire_bytes == wire_gathered + sent);
  });
}

}  // namespace
}  // namespace narrowcast::testing
