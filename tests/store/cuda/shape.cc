#include "store/cuda/shape.h"

#include <algorithm>
#include <initializer_list>

#include "doctest/doctest.h"

namespace narrowcast::store::cuda {
namespace {

constexpr size_t most_shared_bytes = 227 << 10;  // of a CTA on Hopper

// Rows of a floating-point type whose payloads need `tenths` of their bytes.
ShapeInput coded_rows(uint32_t elem_bytes, uint32_t row_bytes, uint32_t tenths) {
  const uint32_t slot_bytes = (row_bytes * tenths / 10 + 8 + 31) / 32 * 32;
  return {.elems = row_bytes / elem_bytes,
          .row_bytes = row_bytes,
          .is_staged = false,
          .is_coded = true,
          .has_only_map = false,
          .staged_bytes = elem_bytes,
          .has_teams = true,
          .has_lanes = false,
          .has_cache = false,
          .slot_bytes = slot_bytes,
          .slot_alignment = 32,
          .far_bytes = (row_bytes + 4 + 31) / 32 * 32};
}

TEST_CASE("shapes fit into shared memory, and their parts have room for rows") {
  for (const size_t shared_bytes : {size_t{99} << 10, size_t{163} << 10, most_shared_bytes})
    for (const uint32_t elem_bytes : {1u, 2u, 4u, 8u})
      for (const uint32_t tenths : {3u, 7u, 9u, 10u})
        for (uint32_t row_bytes = 16; row_bytes <= 65536; row_bytes += row_bytes / 16 * 8)
          for (const bool is_staged : {false, true}) {
            ShapeInput input = coded_rows(elem_bytes, row_bytes, tenths);
            input.is_staged = is_staged;
            CAPTURE(shared_bytes);
            CAPTURE(elem_bytes);
            CAPTURE(tenths);
            CAPTURE(row_bytes);
            const GatherShape shape = gather_shape(input, shared_bytes);
            if (shape.warps == 0) {
              CHECK(3 * input.far_bytes > shared_bytes / 2);
              continue;
            }
            CHECK(cta_bytes(shape) <= shared_bytes);
            CHECK(shape.warps <= max_coded_warps);
            CHECK(shape.warps % shape.team_warps == 0);
            CHECK((shape.team_warps == 1 || shape.rows == 1));
            CHECK(shape.stages >= 2);
            CHECK(shape.stages <= max_stages);
            CHECK(shape.slot_area >= input.slot_bytes);
            CHECK(shape.records_at >= shape.rows * shape.slot_area);
            CHECK(shape.spare_area >= input.far_bytes);
            if (shape.spare_rows == 0) {
              CHECK(shape.rows == 1);
              CHECK(shape.slot_area >= input.far_bytes);
            }
            const uint32_t fixed = shape.team_warps * shape.staged_bytes + shape.spare_rows * shape.spare_area;
            CHECK(shape.team_bytes >= fixed + shape.sums_bytes + shape.stages * shape.stage_bytes);
          }
}

TEST_CASE("gathers leave memory to the L1 cache, through which lines are fetched") {
  for (const uint32_t row_bytes : {128u, 256u, 1024u, 2048u, 4096u, 8192u, 32768u, 65536u}) {
    CAPTURE(row_bytes);
    for (const uint32_t elem_bytes : {2u, 4u, 8u})
      CHECK(cta_bytes(gather_shape(coded_rows(elem_bytes, row_bytes, 9), most_shared_bytes)) <=
            most_shared_bytes - (32 << 10));
    ShapeInput raw = coded_rows(2, row_bytes, 10);
    raw.is_coded = false;
    raw.slot_bytes = row_bytes;
    CHECK(cta_bytes(gather_shape(raw, most_shared_bytes)) <= most_shared_bytes - (32 << 10));
  }
}

TEST_CASE("long rows keep most warps busy") {
  for (const uint32_t row_bytes : {4096u, 8192u, 16384u, 32768u, 65536u}) {
    CAPTURE(row_bytes);
    CHECK(gather_shape(coded_rows(2, row_bytes, 7), most_shared_bytes).warps == 16);
    CHECK(gather_shape(coded_rows(2, row_bytes, 9), most_shared_bytes).warps == 16);
    CHECK(gather_shape(coded_rows(4, row_bytes, 8), most_shared_bytes).warps >= 15);
  }
}

}  // namespace
}  // namespace narrowcast::store::cuda
