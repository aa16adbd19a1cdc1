// What the verifier does not prove: what a codec makes of a message fits a slot. Slots have room for the worst case.
#include "executor/host/staging.h"

#include <algorithm>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/builders/builders.h"
#include "plan/handle.h"
#include "support/codec_table.h"
#include "support/ranks.h"
#include "support/values.h"

namespace narrowcast::testing {
namespace {

using executor::host::payload_bound;

Bytes random_bytes(size_t count) {
  std::minstd_rand random(1);
  Bytes bytes(count);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random() >> 8);
  return bytes;
}

TEST_CASE("a slot holds what any codec with any parameters makes of its values") {
  for (const size_t chunk_bytes : {64, 4096, 20'480, 256 << 10}) {
    const size_t capacity = payload_bound(chunk_bytes);
    CHECK(capacity >= chunk_bytes);
    const Bytes values = random_bytes(chunk_bytes);
    Bytes frame(capacity);
    for (const ncast_codec codec : tests::all_variants())
      for (int number = NCAST_INT8; number <= NCAST_FLOAT8_E5M2; ++number) {
        const auto dtype = static_cast<ncast_dtype>(number);
        for (const uint64_t bytes : {chunk_bytes, chunk_bytes / 2, size_t{16}}) {
          const uint64_t elems = bytes / ncast_dtype_bytes(dtype);
          CHECK(ncast_bound(dtype, codec, elems) <= capacity);
          size_t wire_bytes = 0;
          CHECK(ncast_encode(values.data(), dtype, elems, codec, NCAST_NO_CHECKSUM, frame.data(), capacity,
                             &wire_bytes) == NCAST_OK);
        }
      }
  }
}

TEST_CASE("random bits, which do not shrink, fit the slots of own and of loaded plans") {
  constexpr uint64_t count = 1'000'000;
  constexpr int ranks = 3;
  const Bytes values = random_bytes(count);
  for (const char* builder : {"ring", "one_shot"}) {  // messages, packets
    const ncast_unique_id id = new_id();
    ncast_plan plan;
    REQUIRE(plan::builders::build(
                builder, {.operation = operation::Operation::all_gather, .ranks = ranks, .codec = NCAST_CODEC_WINDOW},
                &plan.plan) == NCAST_OK);
    run_threads(ranks, [&](int rank) {
      const Comm comm(id, rank, ranks);
      Bytes own(ranks * count), loaded(ranks * count);
      EXPECT_OK(ncast_all_gather(values.data(), own.data(), count / 2, NCAST_BFLOAT16,
                                 tests::forced(NCAST_CODEC_WINDOW), comm, nullptr));
      ncast_loaded_plan* prepared = nullptr;
      EXPECT_OK(ncast_plan_load(comm, &plan, NCAST_BFLOAT16, NCAST_SUM, &prepared));
      EXPECT_OK(ncast_loaded_plan_run(prepared, values.data(), loaded.data(), count / 2, nullptr));
      EXPECT_OK(ncast_loaded_plan_destroy(prepared));
      for (int sender = 0; sender < ranks; ++sender)
        EXPECT(std::equal(values.begin(), values.end(), own.begin() + static_cast<ptrdiff_t>(sender * count)));
      EXPECT(loaded == own);
    });
  }
}

}  // namespace
}  // namespace narrowcast::testing
