// Compares collectives by packets with the oracle, for all operations, types and reductions, many sizes and alignments,
// in place and not.
#include "packet_world.h"
#include "support/oracle.h"
#include "support/packet_operations.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using executor::cuda::PacketCall;
using executor::cuda::PacketShape;
using operation::Operation;
using select::Link;
using select::PacketForm;

constexpr ncast_redop all_redops[] = {NCAST_SUM, NCAST_PROD, NCAST_MAX, NCAST_MIN, NCAST_AVG};
constexpr unsigned char poison = 0xa5;

struct Case {
  Operation operation;
  ncast_dtype dtype;
  ncast_redop redop;
  uint64_t count;
  int root;
  bool in_place;
  size_t send_shift, recv_shift;  // in values, from a multiple of 128 bytes
};

// Offsets and sizes of a rank's buffers in its arena. Size 0: the rank has no such buffer.
struct Buffers {
  size_t send, send_bytes, recv, recv_bytes;
  size_t end() const { return std::max(send + send_bytes, recv + recv_bytes) + 128; }
};

Buffers place_buffers(const Case& c, int rank, int ranks) {
  const size_t value_bytes = ncast_dtype_bytes(c.dtype), piece = c.count * value_bytes;
  const auto n = static_cast<size_t>(ranks), own = static_cast<size_t>(rank) * piece;
  const bool is_root = rank == c.root;
  Buffers b{};
  b.send_bytes = b.recv_bytes = piece;
  size_t send_in_recv = 0, recv_in_send = 0;  // in place
  switch (c.operation) {
    case Operation::all_gather:
      b.recv_bytes = n * piece;
      send_in_recv = own;
      break;
    case Operation::reduce_scatter:
      b.send_bytes = n * piece;
      recv_in_send = own;
      break;
    case Operation::all_to_all: b.send_bytes = b.recv_bytes = n * piece; break;
    case Operation::broadcast: b.send_bytes = is_root ? piece : 0; break;
    case Operation::reduce: b.recv_bytes = is_root ? piece : 0; break;
    case Operation::gather:
      b.recv_bytes = is_root ? n * piece : 0;
      send_in_recv = is_root ? own : 0;
      break;
    case Operation::scatter:
      b.send_bytes = is_root ? n * piece : 0;
      recv_in_send = is_root ? own : 0;
      break;
    default: break;  // all_reduce
  }
  b.send = b.recv = 128 + c.send_shift * value_bytes;
  if (c.in_place) {
    b.send += send_in_recv;
    b.recv += recv_in_send;
  } else {
    b.recv = (b.send + b.send_bytes + 255) / 128 * 128 + c.recv_shift * value_bytes;
  }
  return b;
}

// The expected receive buffer of a rank, computed from the send buffers of all ranks.
Bytes expected(const Case& c, const std::vector<Bytes>& sent, int rank, size_t recv_bytes) {
  const size_t piece = c.count * ncast_dtype_bytes(c.dtype), own = static_cast<size_t>(rank) * piece;
  const auto root = static_cast<size_t>(c.root);
  std::vector<Bytes> pieces;
  if (recv_bytes == 0) return {};
  switch (c.operation) {
    case Operation::all_reduce:
    case Operation::reduce: return reduced(c.dtype, c.redop, sent);
    case Operation::reduce_scatter:
      for (const Bytes& from : sent) pieces.push_back(part_of(from, own, piece));
      return reduced(c.dtype, c.redop, pieces);
    case Operation::all_to_all:
      for (const Bytes& from : sent) pieces.push_back(part_of(from, own, piece));
      return concatenated(pieces);
    case Operation::all_gather:
    case Operation::gather: return concatenated(sent);
    case Operation::broadcast: return sent[root];
    case Operation::scatter: return part_of(sent[root], own, piece);
    default: return {};
  }
}

PacketShape shape_of(const Case& c, const TestWorld& world, uint32_t max_ctas) {
  return select::choose_packet_shape(c.operation, c.count * ncast_dtype_bytes(c.dtype), world.ranks(), world.link(),
                                     max_ctas);
}

// Calls body(world) for worlds of 2 to most_ranks ranks, with packets in GPU memory and in host memory.
template <typename Body>
void for_each_world(int most_ranks, Body body) {
  for (const Link link : {Link::nvlink, Link::host}) {
    for (int ranks = 2; ranks <= most_ranks; ++ranks) {
      CAPTURE(name_of(link));
      body(TestWorld(ranks, 30, link));
    }
  }
}

// Of any size of pieces.
PacketForm any_form(Link link, std::mt19937_64& random) {
  if (link == Link::host) return PacketForm::words;
  return random() % 2 == 0 ? PacketForm::lines : PacketForm::short_packets;
}

// fewer_warps: how many warps a rank has less than the rank before.
void run_case(const TestWorld& world, const Case& c, const PacketShape& shape, uint64_t seed,
              uint32_t fewer_warps = 0) {
  const int ranks = world.ranks();
  CAPTURE(ranks);
  CAPTURE(static_cast<int>(c.operation));
  CAPTURE(ncast_dtype_name(c.dtype));
  CAPTURE(static_cast<int>(c.redop));
  CAPTURE(c.count);
  CAPTURE(c.in_place);
  CAPTURE(c.send_shift);
  CAPTURE(c.recv_shift);
  CAPTURE(c.root);
  CAPTURE(shape.ctas);
  CAPTURE(shape.warps);
  CAPTURE(static_cast<int>(shape.form));
  const size_t value_bytes = ncast_dtype_bytes(c.dtype);
  std::vector<Bytes> sent, images;
  for (int rank = 0; rank < ranks; ++rank) {
    const Buffers b = place_buffers(c, rank, ranks);
    REQUIRE(b.end() <= TestWorld::arena_bytes);
    sent.push_back(random_values(c.dtype, b.send_bytes / value_bytes, seed * 64 + static_cast<uint64_t>(rank)));
    Bytes image(b.end(), poison);
    std::copy(sent.back().begin(), sent.back().end(), image.begin() + static_cast<std::ptrdiff_t>(b.send));
    REQUIRE_CUDA(cudaMemcpy(world.rank(rank).arena, image.data(), image.size(), cudaMemcpyDefault));
    images.push_back(std::move(image));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    world.use(rank);
    REQUIRE_CUDA(cudaDeviceSynchronize());
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const Buffers b = place_buffers(c, rank, ranks);
    char* arena = world.rank(rank).arena;
    const PacketCall call{c.operation,
                          b.send_bytes == 0 && !c.in_place ? nullptr : arena + b.send,
                          b.recv_bytes == 0 && !c.in_place ? nullptr : arena + b.recv,
                          c.count,
                          c.dtype,
                          c.redop,
                          c.root};
    PacketShape own = shape;
    own.warps = std::max(own.warps - std::min(own.warps, static_cast<uint32_t>(rank) * fewer_warps), 1u);
    world.launch(rank, call, own);
  }
  world.synchronize();
  Bytes first;
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    const Buffers b = place_buffers(c, rank, ranks);
    Bytes& image = images[static_cast<size_t>(rank)];
    Bytes found(image.size());
    REQUIRE_CUDA(cudaMemcpy(found.data(), world.rank(rank).arena, found.size(), cudaMemcpyDefault));
    const Bytes wanted = expected(c, sent, rank, b.recv_bytes), received = part_of(found, b.recv, b.recv_bytes);
    if (reduces(c.operation)) {
      CHECK(equal_numbers(c.dtype, received, wanted));
    } else {
      CHECK((received == wanted));
    }
    if (c.operation == Operation::all_reduce) {  // the same bits on all ranks, including those of NaNs
      if (rank == 0) first = received;
      CHECK((received == first));
    }
    // The rest of the arena is unchanged.
    std::copy(received.begin(), received.end(), image.begin() + static_cast<std::ptrdiff_t>(b.recv));
    CHECK((found == image));
  }
}

Case random_case(Operation operation, ncast_dtype dtype, ncast_redop redop, uint64_t count, int ranks,
                 std::mt19937_64& random) {
  Case c{operation, dtype, redop, count, 0, false, 0, 0};
  c.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  c.in_place = operation != Operation::all_to_all && random() % 2 == 0;
  if (random() % 2 == 0) c.send_shift = random() % 9;
  if (random() % 2 == 0) c.recv_shift = random() % 9;
  return c;
}

int max_ranks() { return is_reduced_run() ? 3 : channel::max_gpu_ranks; }

}  // namespace

TEST_CASE("packets: every operation, type and reduction has the same bits as the oracle") {
  const TimeLimit limit(240);
  constexpr uint64_t counts[] = {0, 1, 2, 3, 5, 8, 13, 24, 31, 96, 97, 191, 192, 193, 383, 385, 768, 1001, 2050, 4099};
  constexpr uint32_t ctas[] = {1, 2, 3, 8};
  std::mt19937_64 random(1);
  uint64_t number = 0;
  for_each_world(max_ranks(), [&](const TestWorld& world) {
    const int ranks = world.ranks(), all = world.in_host() ? 4 : 8;
    for (const Operation operation : packet_operations()) {
      for (const ncast_dtype dtype : all_dtypes) {
        for (const ncast_redop redop : all_redops) {
          if (!reduces(operation) && redop != NCAST_SUM) continue;
          for (int i = 0; i < (is_reduced_run() ? 1 : reduces(operation) ? all / 2 - 1 : all); ++i, ++number) {
            // 7 and 20 are coprime, so every count is used.
            const Case c = random_case(operation, dtype, redop, counts[number * 7 % std::size(counts)], ranks, random);
            PacketShape shape = shape_of(c, world, ctas[random() % std::size(ctas)]);
            shape.form = any_form(world.link(), random);
            run_case(world, c, shape, number);
          }
        }
      }
    }
    world.check_scratch();
  });
}

TEST_CASE("packets: two-shot all-reduces have the same bits as the oracle") {
  const TimeLimit limit(240);
  std::mt19937_64 random(2);
  uint64_t number = 0;
  for_each_world(max_ranks(), [&](const TestWorld& world) {
    const int ranks = world.ranks();
    for (const ncast_dtype dtype : all_dtypes) {
      for (const ncast_redop redop : all_redops) {
        const uint64_t count = (uint64_t{16} << 10) / ncast_dtype_bytes(dtype) + random() % 3000;
        const PacketShape shape{true, 1 + static_cast<uint32_t>(random() % 8), 1 + static_cast<uint32_t>(random() % 16),
                                any_form(world.link(), random)};
        const Case c = random_case(Operation::all_reduce, dtype, redop, count, ranks, random);
        run_case(world, c, shape, number++);
        if (is_reduced_run()) break;
      }
    }
    world.check_scratch();
  });
}

TEST_CASE("packets: warps that take several turns, more of them on some ranks than on others, move the right bits") {
  const TimeLimit limit(240);
  std::mt19937_64 random(4);
  uint64_t number = 0;
  for_each_world(max_ranks(), [&](const TestWorld& world) {
    for (const Operation operation : packet_operations()) {
      for (const ncast_dtype dtype : {NCAST_FLOAT16, NCAST_FLOAT32, NCAST_BFLOAT16, NCAST_UINT8}) {
        for (const PacketForm form : {PacketForm::words, PacketForm::short_packets, PacketForm::lines}) {
          if (world.in_host() != (form == PacketForm::words)) continue;
          for (const uint64_t odd : {0, 1}) {  // aligned whole words, or not
            const bool two_shot = operation == Operation::all_reduce && random() % 2 == 0;
            const uint64_t bytes = (20 << 10) + random() % 2000 * 8;
            const Case c{operation, dtype, NCAST_SUM, bytes / ncast_dtype_bytes(dtype) + odd, 0, false, odd, 0};
            const PacketShape shape{two_shot, 1 + static_cast<uint32_t>(random() % 3), 4, form};
            run_case(world, c, shape, number++, random() % 2);
          }
        }
        if (is_reduced_run()) break;
      }
    }
    world.check_scratch();
  });
}

TEST_CASE("packets: messages around the threshold of two shots, and of maximum size") {
  const TimeLimit limit(240);
  std::mt19937_64 random(3);
  uint64_t number = 0;
  for_each_world(is_reduced_run() ? 2 : channel::max_gpu_ranks, [&](const TestWorld& world) {
    const int ranks = world.ranks();
    const Link link = world.link();
    for (const ncast_dtype dtype : {NCAST_FLOAT32, NCAST_BFLOAT16}) {
      const uint64_t one_shot = executor::cuda::most_one_shot_bytes(ranks, link) / ncast_dtype_bytes(dtype);
      for (const uint64_t count : {one_shot - 1, one_shot, one_shot + 1}) {
        if (count * ncast_dtype_bytes(dtype) > executor::cuda::most_packet_bytes(Operation::all_reduce, ranks, link))
          continue;
        const Case c = random_case(Operation::all_reduce, dtype, NCAST_SUM, count, ranks, random);
        run_case(world, c, shape_of(c, world, 8), number++);
      }
    }
    for (const Operation operation : packet_operations()) {
      const uint64_t most = executor::cuda::most_packet_bytes(operation, ranks, link);
      const ncast_dtype dtype = reduces(operation) ? NCAST_INT64 : NCAST_UINT32;
      const uint64_t count = most / ncast_dtype_bytes(dtype);
      const Case c = random_case(operation, dtype, NCAST_SUM, count, ranks, random);
      run_case(world, c, shape_of(c, world, 8), number++);
      const PacketCall too_long{operation, world.rank(0).arena, world.rank(0).arena, count + 1, dtype, NCAST_SUM, 0};
      CHECK(executor::cuda::launch_packets(world.peers(0), TestWorld::scratch_offset, too_long, shape_of(c, world, 8),
                                           world.rank(0).stream) == cudaErrorInvalidValue);
    }
    world.check_scratch();
  });
}

TEST_CASE("packets: a single rank copies its data") {
  const TimeLimit limit(60);
  const TestWorld world(1);
  std::mt19937_64 random(4);
  for (const Operation operation : packet_operations())
    for (const ncast_dtype dtype : {NCAST_INT32, NCAST_UINT8})
      run_case(world, random_case(operation, dtype, NCAST_SUM, 1001, 1, random), {false, 1, 1}, 5);
}

}  // namespace narrowcast::testing
