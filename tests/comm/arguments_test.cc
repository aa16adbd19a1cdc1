// Invalid arguments are rejected with a message that names the function, the argument and the value. The communicator
// remains usable.
#include "comm/arguments.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "executor/backend.h"
#include "narrowcast/reduction.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

#define CHECK_REJECTED(call, part)                           \
  do {                                                       \
    CHECK((call) == NCAST_INVALID_ARGUMENT);                 \
    CHECK_MESSAGE(error_contains(part), ncast_last_error()); \
  } while (false)

// A communicator of one rank. This is enough for calls that are rejected before they start.
struct SingleRank {
  TimeLimit limit;
  ncast_comm* comm = nullptr;
  float values[8] = {};
  float others[8] = {};

  SingleRank() {
    const ncast_unique_id id = new_id();
    REQUIRE(ncast_comm_create(&comm, 1, &id, 0, nullptr) == NCAST_OK);
  }
  ~SingleRank() {
    CHECK(ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK);
    CHECK(ncast_comm_destroy(comm) == NCAST_OK);
  }
};

TEST_CASE_FIXTURE(SingleRank, "invalid arguments of calls are rejected") {
  const auto dtype = NCAST_FLOAT32;
  const auto raw = NCAST_CODEC_RAW;
  CHECK_REJECTED(ncast_send(values, 1, dtype, 1, raw, comm, nullptr), "ncast_send: peer is 1");
  CHECK_REJECTED(ncast_recv(values, 1, dtype, -1, raw, comm, nullptr), "ncast_recv: peer is -1");
  CHECK_REJECTED(ncast_broadcast(values, values, 1, dtype, 3, raw, comm, nullptr), "ncast_broadcast: root is 3");
  CHECK_REJECTED(ncast_broadcast(nullptr, values, 1, dtype, 0, raw, comm, nullptr), "ncast_broadcast: send is NULL");
  CHECK_REJECTED(ncast_all_gather(values, nullptr, 1, dtype, raw, comm, nullptr), "ncast_all_gather: recv is NULL");
  CHECK_REJECTED(ncast_all_gather(values, others, 1, static_cast<ncast_dtype>(12), raw, comm, nullptr), "dtype is 12");
  CHECK_REJECTED(ncast_all_to_all(values, others, 1, dtype, static_cast<ncast_codec>(77), comm, nullptr),
                 "codec is 77");
  CHECK_REJECTED(ncast_all_to_all(values, values, 1, dtype, raw, comm, nullptr), "overlap");
  CHECK_REJECTED(ncast_all_reduce(values, values + 1, 4, dtype, NCAST_SUM, raw, comm, nullptr), "overlap");
  CHECK_REJECTED(ncast_all_reduce(values, others, 1, dtype, static_cast<ncast_redop>(5), raw, comm, nullptr),
                 "op is 5");
  CHECK_REJECTED(ncast_all_reduce(values, others, 1, dtype, NCAST_SUM, raw, nullptr, nullptr), "comm is NULL");
  CHECK_REJECTED(
      ncast_all_reduce(values, others, std::numeric_limits<uint64_t>::max(), dtype, NCAST_SUM, raw, comm, nullptr),
      "count is 18446744073709551615");
  CHECK_REJECTED(ncast_all_reduce(reinterpret_cast<char*>(values) + 1, others, 1, dtype, NCAST_SUM, raw, comm, nullptr),
                 "not aligned");
  CHECK_REJECTED(ncast_all_reduce(values, others, 1, dtype, NCAST_SUM, raw, comm, this), "stream");
  CHECK_REJECTED(ncast_send(values, 1, dtype, 0, raw, comm, nullptr), "sends to itself 1 times");
}

TEST_CASE_FIXTURE(SingleRank, "invalid arguments of rooted calls are rejected") {
  const auto dtype = NCAST_FLOAT32;
  const auto raw = NCAST_CODEC_RAW;
  CHECK_REJECTED(ncast_reduce(values, others, 1, dtype, NCAST_SUM, 1, raw, comm, nullptr), "ncast_reduce: root is 1");
  CHECK_REJECTED(ncast_reduce(values, nullptr, 1, dtype, NCAST_SUM, 0, raw, comm, nullptr),
                 "ncast_reduce: recv is NULL");
  CHECK_REJECTED(ncast_reduce(values, values + 1, 2, dtype, NCAST_SUM, 0, raw, comm, nullptr), "overlap");
  CHECK_REJECTED(ncast_gather(values, others, 1, dtype, -1, raw, comm, nullptr), "ncast_gather: root is -1");
  CHECK_REJECTED(ncast_gather(nullptr, others, 1, dtype, 0, raw, comm, nullptr), "ncast_gather: send is NULL");
  CHECK_REJECTED(ncast_gather(values, values + 1, 2, dtype, 0, raw, comm, nullptr), "overlap");
  CHECK_REJECTED(ncast_scatter(nullptr, others, 1, dtype, 0, raw, comm, nullptr), "ncast_scatter: send is NULL");
  CHECK_REJECTED(ncast_scatter(values, nullptr, 1, dtype, 0, raw, comm, nullptr), "ncast_scatter: recv is NULL");
  CHECK_REJECTED(ncast_scatter(values, others, 1, dtype, 0, static_cast<ncast_codec>(191), comm, nullptr),
                 "codec is 191");
}

TEST_CASE_FIXTURE(SingleRank, "lossy codecs are rejected for integers, and for reductions but sums and averages") {
  const ncast_codec lossy = NCAST_CODEC_INT8 | NCAST_CODEC_FORCED;
  const uint64_t one = 1, none = 0;
  int32_t *const from = reinterpret_cast<int32_t*>(values), *const to = reinterpret_cast<int32_t*>(others);
  for (const ncast_dtype dtype : {NCAST_INT8, NCAST_UINT8, NCAST_INT32, NCAST_UINT32, NCAST_INT64, NCAST_UINT64}) {
    const std::string of = std::string(" of ") + ncast_dtype_name(dtype) + " cannot use codec int8!";
    CHECK_REJECTED(ncast_send(from, 1, dtype, 0, lossy, comm, nullptr), "ncast_send: send" + of);
    CHECK_REJECTED(ncast_recv(to, 1, dtype, 0, lossy, comm, nullptr), "recv" + of);
    CHECK_REJECTED(ncast_broadcast(from, to, 1, dtype, 0, lossy, comm, nullptr), "broadcast" + of);
    CHECK_REJECTED(ncast_gather(from, to, 1, dtype, 0, lossy, comm, nullptr), "gather" + of);
    CHECK_REJECTED(ncast_scatter(from, to, 1, dtype, 0, lossy, comm, nullptr), "scatter" + of);
    CHECK_REJECTED(ncast_all_gather(from, to, 1, dtype, lossy, comm, nullptr), "all_gather" + of);
    CHECK_REJECTED(ncast_all_to_all(from, to, 1, dtype, lossy, comm, nullptr), "all_to_all" + of);
    CHECK_REJECTED(ncast_all_to_all_v(from, &one, &none, to, &one, &none, dtype, lossy, comm, nullptr),
                   "all_to_all_v" + of);
    CHECK_REJECTED(ncast_all_reduce(from, to, 1, dtype, NCAST_SUM, lossy, comm, nullptr), "all_reduce (sum)" + of);
  }
  for (const auto& [op, name] : {std::pair(NCAST_PROD, "prod"), {NCAST_MAX, "max"}, {NCAST_MIN, "min"}}) {
    const std::string of = std::string(" (") + name + ") of float32 cannot use codec int8!";
    CHECK_REJECTED(ncast_reduce(values, others, 1, NCAST_FLOAT32, op, 0, lossy, comm, nullptr), "reduce" + of);
    CHECK_REJECTED(ncast_reduce_scatter(values, others, 1, NCAST_FLOAT32, op, lossy, comm, nullptr),
                   "reduce_scatter" + of);
    CHECK_REJECTED(ncast_all_reduce(values, others, 1, NCAST_FLOAT32, op, lossy, comm, nullptr), "all_reduce" + of);
  }
  // Also in a group, of which no call is launched.
  REQUIRE(ncast_group_start() == NCAST_OK);
  CHECK_REJECTED(ncast_all_reduce(values, others, 1, NCAST_FLOAT32, NCAST_MAX, lossy, comm, nullptr), "(max)");
  CHECK_REJECTED(ncast_group_end(), "no call of the group was launched");
  CHECK(ncast_broadcast(values, values, 1, NCAST_FLOAT32, 0, lossy, comm, nullptr) == NCAST_OK);
  CHECK(ncast_all_gather(values, others, 1, NCAST_FLOAT64, lossy, comm, nullptr) == NCAST_OK);
}

TEST_CASE_FIXTURE(SingleRank, "codecs of results are rejected where they do not combine") {
  const auto run = [&](ncast_codec codec, ncast_codec result, ncast_operation operation = NCAST_OP_ALL_REDUCE,
                       ncast_redop op = NCAST_SUM) {
    const ncast_reduction_options options = {sizeof options, nullptr, nullptr, &result};
    return ncast_run_reduction(operation, values, others, 2, NCAST_FLOAT32, op, 0, codec, &options, comm, nullptr);
  };
  constexpr ncast_codec raw = NCAST_CODEC_RAW, int8 = NCAST_CODEC_INT8, window = NCAST_CODEC_WINDOW;
  for (const auto& [codec, result] : {std::pair(int8, ncast_codec{NCAST_CODEC_NVFP4}),
                                      {int8, raw},
                                      {raw, int8},
                                      {window, window},
                                      {NCAST_CODEC_AUTO, NCAST_CODEC_AUTO}})
    CHECK(run(codec, result) == NCAST_OK);
  for (const auto& [codec, result] : {std::pair(int8, window),
                                      {window, int8},
                                      {window, raw},
                                      {raw, window},
                                      {NCAST_CODEC_AUTO, int8},
                                      {int8, NCAST_CODEC_AUTO}})
    CHECK_REJECTED(run(codec, result), "does not combine with codec");
  CHECK_REJECTED(run(int8, raw, NCAST_OP_REDUCE), "result_codec is only for all_reduce, not for reduce");
  CHECK_REJECTED(run(raw, int8, NCAST_OP_ALL_REDUCE, NCAST_MAX), "all_reduce (max) of float32 cannot use codec int8");
  CHECK_REJECTED(run(raw, 77), "codec is 77");
}

TEST_CASE_FIXTURE(SingleRank, "factors are only for sums of floats") {
  const double half = 0.5;
  const auto run = [&](const ncast_reduction_options& options, ncast_redop op = NCAST_SUM,
                       ncast_dtype dtype = NCAST_FLOAT32, int operation = NCAST_OP_ALL_REDUCE) {
    return ncast_run_reduction(static_cast<ncast_operation>(operation), values, others, 2, dtype, op, 7,
                               NCAST_CODEC_RAW, &options, comm, nullptr);
  };
  const ncast_reduction_options number = {sizeof number, &half, nullptr, nullptr};
  CHECK_REJECTED(run(number, NCAST_AVG), "all_reduce (avg) of float32 has no factor");
  CHECK_REJECTED(run(number, NCAST_SUM, NCAST_INT32), "all_reduce (sum) of int32 has no factor");
  CHECK_REJECTED(run(number, NCAST_SUM, NCAST_FLOAT32, NCAST_OP_BROADCAST), "operation is 2, which does not reduce");
  CHECK_REJECTED(run(number, NCAST_SUM, NCAST_FLOAT32, NCAST_OP_REDUCE), "root is 7");
  CHECK_REJECTED(run({sizeof number, &half, &half, nullptr}), "both factor and device_factor");
  CHECK_REJECTED(run({sizeof number, nullptr, reinterpret_cast<char*>(values) + 2, nullptr}), "device_factor is");
  CHECK_REJECTED(run({3, nullptr, nullptr, nullptr}), "options.struct_bytes is 3");
  std::fill_n(values, 2, 3.0f);
  CHECK(run(number) == NCAST_OK);
  CHECK(others[1] == 1.5f);
  CHECK(run({sizeof number, nullptr, others, nullptr}) == NCAST_OK);
  CHECK(others[1] == 4.5f);
  CHECK(values[1] == 3);
}

TEST_CASE("invalid counts of all_to_all_v are rejected") {
  constexpr int ranks = 3;
  ncast_comm* comms[ranks] = {};
  REQUIRE(ncast_comm_create_all(comms, ranks, nullptr, nullptr) == NCAST_OK);
  float values[8] = {};
  float others[8] = {};
  const uint64_t twos[] = {2, 2, 2};
  const uint64_t offsets[] = {0, 2, 4};
  const uint64_t huge[] = {~uint64_t{0} / 2, 2, 2};
  const auto call = [&](const float* send, const uint64_t* send_counts, const uint64_t* send_offsets, float* recv,
                        const uint64_t* recv_counts, const uint64_t* recv_offsets) {
    return ncast_all_to_all_v(send, send_counts, send_offsets, recv, recv_counts, recv_offsets, NCAST_FLOAT32,
                              NCAST_CODEC_RAW, comms[0], nullptr);
  };
  CHECK_REJECTED(ncast_all_to_all_v(values, twos, offsets, others, twos, offsets, NCAST_FLOAT32, NCAST_CODEC_RAW,
                                    nullptr, nullptr),
                 "ncast_all_to_all_v: comm is NULL");
  CHECK_REJECTED(call(values, nullptr, offsets, others, twos, offsets), "send_counts is NULL");
  CHECK_REJECTED(call(values, twos, nullptr, others, twos, offsets), "send_offsets is NULL");
  CHECK_REJECTED(call(values, twos, offsets, others, nullptr, offsets), "recv_counts is NULL");
  CHECK_REJECTED(call(values, twos, offsets, others, twos, nullptr), "recv_offsets is NULL");
  CHECK_REJECTED(call(nullptr, twos, offsets, others, twos, offsets), "send is NULL");
  CHECK_REJECTED(call(values, twos, offsets, nullptr, twos, offsets), "recv is NULL");
  CHECK_REJECTED(call(values, huge, offsets, others, twos, offsets), "send_counts[0] is 9223372036854775807");
  CHECK_REJECTED(call(values, twos, huge, others, twos, offsets), "send_offsets[0] is 9223372036854775807");
  for (const auto& [overlapping, part] :
       {std::pair(std::array<uint64_t, ranks>{0, 1, 4}, "from ranks 0 and 1 overlap"),
        std::pair(std::array<uint64_t, ranks>{1, 4, 0}, "from ranks 2 and 0 overlap")})
    CHECK_REJECTED(call(values, twos, offsets, others, twos, overlapping.data()), part);
  CHECK_REJECTED(call(values, twos, offsets, values, twos, offsets), "does not work in place");
  // Together, the pieces of three ranks exceed the address space.
  const uint64_t third = (uint64_t{1} << 62) / 3 / sizeof(float) + 1;
  CHECK_REJECTED(ncast_all_gather(values, others, third, NCAST_FLOAT32, NCAST_CODEC_RAW, comms[0], nullptr),
                 "which exceeds the address space");
  const uint64_t apart[] = {0, 3, 5};
  const uint64_t uneven[] = {3, 2, 2};
  CHECK(call(values, uneven, apart, others, twos, offsets) == NCAST_MISMATCH);
  CHECK(error_contains("rank 0 sends itself 3 values but receives 2"));
  // A call is also rejected inside a group.
  REQUIRE(ncast_group_start() == NCAST_OK);
  CHECK_REJECTED(call(values, nullptr, offsets, others, twos, offsets), "send_counts is NULL");
  CHECK_REJECTED(ncast_group_end(), "no call of the group was launched");
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_OK);
}

TEST_CASE_FIXTURE(SingleRank, "buffers may be adjacent") {
  for (const int sent : {0, 2}) {
    float* const send = values + sent;
    float* const recv = values + 2 - sent;
    send[0] = 1, send[1] = 2, recv[0] = recv[1] = 0;
    CHECK(ncast_all_to_all(send, recv, 2, NCAST_FLOAT32, NCAST_CODEC_RAW, comm, nullptr) == NCAST_OK);
    CHECK(recv[0] == 1);
    CHECK(recv[1] == 2);
  }
}

TEST_CASE_FIXTURE(SingleRank, "every send of a rank to itself must match its receive, or no call of the group runs") {
  const auto run = [&](int pair, uint64_t send_count, ncast_dtype send_dtype) {
    std::fill_n(values, 8, 5.0f);
    std::fill_n(others, 8, 0.0f);
    REQUIRE(ncast_group_start() == NCAST_OK);
    for (int i = 0; i < 3; ++i) {
      const bool differs = i == pair;
      REQUIRE(ncast_send(values, differs ? send_count : 2, differs ? send_dtype : NCAST_FLOAT32, 0, NCAST_CODEC_RAW,
                         comm, nullptr) == NCAST_OK);
      REQUIRE(ncast_recv(others + 2 * i, 2, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr) == NCAST_OK);
    }
    return ncast_group_end();
  };
  CHECK(run(-1, 2, NCAST_FLOAT32) == NCAST_OK);
  CHECK(std::count(others, others + 8, 5.0f) == 6);
  for (int pair = 0; pair < 3; ++pair) {
    CAPTURE(pair);
    CHECK(run(pair, 8, NCAST_FLOAT32) == NCAST_MISMATCH);
    CHECK(std::string(ncast_last_error()) ==
          "rank 0 sends itself 8 float32 but receives 2 float32 (they differ in count)");
    CHECK(std::count(others, others + 8, 0.0f) == 8);
    CHECK(run(pair, 2, NCAST_INT32) == NCAST_MISMATCH);
    CHECK(error_contains("(they differ in dtype)"));
    CHECK(std::count(others, others + 8, 0.0f) == 8);
  }
}

TEST_CASE_FIXTURE(SingleRank, "no call of a group runs if one is rejected") {
  values[0] = 5;
  REQUIRE(ncast_group_start() == NCAST_OK);
  CHECK(ncast_broadcast(values, others, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr) == NCAST_OK);
  CHECK_REJECTED(ncast_broadcast(values, others, 1, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, nullptr), "root is 1");
  CHECK_REJECTED(ncast_broadcast(values, others, 1, NCAST_FLOAT32, 2, NCAST_CODEC_RAW, comm, nullptr), "root is 2");
  CHECK_REJECTED(ncast_group_end(),
                 "no call of the group was launched, because one was rejected: ncast_broadcast: root is 1");
  CHECK(others[0] == 0);
  CHECK_REJECTED(ncast_group_end(), "no group is open");
}

TEST_CASE_FIXTURE(SingleRank, "a communicator in an open group is not destroyed") {
  REQUIRE(ncast_group_start() == NCAST_OK);
  CHECK(ncast_broadcast(values, others, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr) == NCAST_OK);
  CHECK_REJECTED(ncast_comm_destroy(comm), "open group");
  CHECK(ncast_group_end() == NCAST_OK);
}

TEST_CASE("invalid settings of a communicator are rejected") {
  const TimeLimit limit;
  const ncast_unique_id id = new_id();
  ncast_comm* comm = nullptr;
  CHECK_REJECTED(ncast_comm_create(nullptr, 1, &id, 0, nullptr), "comm is NULL");
  CHECK_REJECTED(ncast_comm_create(&comm, 1, nullptr, 0, nullptr), "id is NULL");
  CHECK_REJECTED(ncast_comm_create(&comm, 0, &id, 0, nullptr), "ranks is 0");
  CHECK_REJECTED(ncast_comm_create(&comm, 65, &id, 0, nullptr), "ranks is 65");
  CHECK_REJECTED(ncast_comm_create(&comm, 2, &id, 2, nullptr), "rank is 2");
  ncast_unique_id zeros;
  std::memset(&zeros, 0, sizeof zeros);
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &zeros, 0, nullptr), "id was not created");
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.scratch_bytes = 1000;
  CHECK_REJECTED(ncast_comm_create(&comm, 8, &id, 0, &config), "scratch_bytes is 1000, but 8 ranks need at least ");
  ncast_comm_config_init(&config);
  config.timeout_seconds = -1;
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &id, 0, &config), "timeout_seconds is -1");
  config.timeout_seconds = std::numeric_limits<double>::infinity();
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &id, 0, &config), "timeout_seconds is inf");
  config.timeout_seconds = 1;
  config.create_timeout_seconds = std::numeric_limits<double>::quiet_NaN();
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &id, 0, &config), "create_timeout_seconds is nan");
  ncast_comm_config_init(&config);
  config.backend = static_cast<ncast_backend>(7);
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &id, 0, &config), "backend is 7");
  ncast_comm_config_init(&config);
  config.device = -2;
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &id, 0, &config), "device is -2");
  config.struct_bytes = 0;
  CHECK_REJECTED(ncast_comm_create(&comm, 1, &id, 0, &config), "config.struct_bytes is 0");
  CHECK(comm == nullptr);
  CHECK(ncast_comm_destroy(nullptr) == NCAST_OK);
}

TEST_CASE("a shorter config of an older version is accepted") {
  constexpr size_t older_bytes = offsetof(ncast_comm_config, max_ctas);
  ncast_comm_config config;
  std::memset(static_cast<void*>(&config), 0x7f, sizeof config);
  ncast_comm_config_defaults(&config, older_bytes);
  CHECK(config.struct_bytes == older_bytes);
  CHECK(config.max_ctas == 0x7f7f7f7f);  // memory after the older struct is not written
  config.timeout_seconds = 7;
  ncast_comm_config taken;
  REQUIRE(comm::read_config(&config, &taken) == NCAST_OK);
  CHECK(taken.timeout_seconds == 7);
  CHECK(taken.max_ctas == 0);  // and not read: these are the defaults
  CHECK(taken.p2p == -1);
  CHECK(taken.cost_model == nullptr);
  const ncast_unique_id id = new_id();
  ncast_comm* comm = nullptr;
  CHECK(ncast_comm_create(&comm, 1, &id, 0, &config) == NCAST_OK);
  CHECK(ncast_comm_destroy(comm) == NCAST_OK);
}

TEST_CASE("a backend that this build lacks is unsupported") {
  if (executor::find_backend(NCAST_BACKEND_CUDA) != nullptr) return;
  const ncast_unique_id id = new_id();
  ncast_comm* comm = nullptr;
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.backend = NCAST_BACKEND_CUDA;
  CHECK(ncast_comm_create(&comm, 1, &id, 0, &config) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error()) == "ncast_comm_create: this build has no CUDA backend");
}

TEST_CASE("a longer config of a newer version is accepted if its new members are zero") {
  struct {
    ncast_comm_config config;
    uint64_t unknown;
  } newer;
  newer.unknown = 1;
  ncast_comm_config_defaults(&newer.config, sizeof newer);
  CHECK(newer.unknown == 0);
  newer.config.timeout_seconds = 7;
  ncast_comm_config read;
  REQUIRE(comm::read_config(&newer.config, &read) == NCAST_OK);
  CHECK(read.timeout_seconds == 7);
  CHECK(read.struct_bytes == sizeof read);
  newer.unknown = 1;
  CHECK(comm::read_config(&newer.config, &read) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error()) == "config sets a member at byte " + std::to_string(sizeof(ncast_comm_config)) +
                                               ", which this version of the library does not have");
}

TEST_CASE("only the members that an older version has are written to its counters") {
  const ncast_unique_id id = new_id();
  Comm comm(id, 0, 1);
  float value = 1;
  REQUIRE(ncast_all_reduce(&value, &value, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, nullptr) == NCAST_OK);
  ncast_comm_counters counters;
  counters.struct_bytes = offsetof(ncast_comm_counters, raw_bytes);
  counters.raw_bytes = 99;
  REQUIRE(ncast_comm_get_counters(comm, &counters) == NCAST_OK);
  CHECK(counters.calls == 1);
  CHECK(counters.raw_bytes == 99);
  counters.struct_bytes = 0;
  CHECK_REJECTED(ncast_comm_get_counters(comm, &counters), "counters->struct_bytes is 0");
  // Older programs know fewer operations than the library, and newer ones more.
  ncast_operation_counters operations[NCAST_OPERATIONS + 2] = {};
  operations[1].calls = 99;
  REQUIRE(ncast_comm_get_operation_counters(comm, operations, 1) == NCAST_OK);
  CHECK(operations[1].calls == 99);
  operations[NCAST_OPERATIONS].calls = 99;
  REQUIRE(ncast_comm_get_operation_counters(comm, operations, NCAST_OPERATIONS + 1) == NCAST_OK);
  CHECK(operations[NCAST_OP_ALL_REDUCE].calls == 1);
  CHECK(operations[NCAST_OPERATIONS].calls == 0);
  CHECK_REJECTED(ncast_comm_get_operation_counters(comm, operations, -1), "capacity is -1");
  CHECK_REJECTED(ncast_comm_get_operation_counters(comm, nullptr, 1), "counters is NULL");
}

}  // namespace
}  // namespace narrowcast::testing
