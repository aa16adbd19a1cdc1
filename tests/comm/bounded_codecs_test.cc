// Bounded codecs in calls whose result all ranks share: the rank that encoded the values ends with the same bits as the
// rest.
#include <cmath>
#include <cstring>

#include "support/frame_info.h"
#include "support/oracle.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

constexpr int ranks = 3;
constexpr size_t count = 5000;

std::vector<float> values_of(int rank) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
  return values;
}

// All ranks hold the same bits, each piece from its owner.
void expect_equal_on_all_ranks(const std::vector<float>& own, ncast_comm* comm) {
  std::vector<float> all(own.size() * ranks);
  EXPECT_OK(ncast_all_gather(own.data(), all.data(), own.size(), NCAST_FLOAT32, NCAST_CODEC_RAW, comm, nullptr));
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT(std::memcmp(&all[own.size() * static_cast<size_t>(rank)], own.data(), own.size() * sizeof(float)) == 0);
}

void expect_near(const std::vector<float>& values, const std::vector<float>& expected, double tolerance) {
  for (size_t i = 0; i < values.size(); ++i) EXPECT(std::abs(values[i] - expected[i]) <= tolerance);
}

void check(ncast_codec codec, int rank, ncast_comm* comm) {
  const double bound = ncast_codec_error_bound(codec, NCAST_FLOAT32, 1);
  std::vector<float> broadcast = values_of(rank);  // in place on the root
  EXPECT_OK(ncast_broadcast(broadcast.data(), broadcast.data(), count, NCAST_FLOAT32, 1, codec, comm, nullptr));
  expect_equal_on_all_ranks(broadcast, comm);
  expect_near(broadcast, values_of(1), bound);

  std::vector<float> gathered(count * ranks), expected;
  for (int peer = 0; peer < ranks; ++peer)
    for (const float value : values_of(peer)) expected.push_back(value);
  EXPECT_OK(ncast_all_gather(values_of(rank).data(), gathered.data(), count, NCAST_FLOAT32, codec, comm, nullptr));
  expect_equal_on_all_ranks(gathered, comm);
  expect_near(gathered, expected, bound);

  std::vector<float> sum(count), exact(count);
  for (int peer = 0; peer < ranks; ++peer)
    for (size_t i = 0; i < count; ++i) exact[i] += values_of(peer)[i];
  EXPECT_OK(
      ncast_all_reduce(values_of(rank).data(), sum.data(), count, NCAST_FLOAT32, NCAST_SUM, codec, comm, nullptr));
  expect_equal_on_all_ranks(sum, comm);
  // An error for every contribution, and that of the result.
  expect_near(sum, exact, (ranks - 1) * bound + ncast_codec_error_bound(codec, NCAST_FLOAT32, ranks + 1) + 1e-6);
}

}  // namespace

TEST_CASE("AllRanksEndWithTheSameBitsUnderABoundedCodec") {
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    ncast_comm* comm = nullptr;
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.backend = NCAST_BACKEND_HOST;
    EXPECT_OK(ncast_comm_create(&comm, ranks, &id, rank, &config));
    for (size_t i = 0; i < ncast_codec_count(); ++i)
      if (const ncast_codec_info info = tests::codec_info(i); info.exact == 0) check(info.codec, rank, comm);
    EXPECT_OK(ncast_comm_destroy(comm));
  });
}

}  // namespace narrowcast::testing
