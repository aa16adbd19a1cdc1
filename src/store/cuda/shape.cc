#include "store/cuda/shape.h"

#include <algorithm>
#include <bit>

namespace narrowcast::store::cuda {
namespace {

constexpr uint32_t piece_elems = 1024;
constexpr uint32_t record_bytes = 8 + 4, way_bytes = 4;  // of a row in a stage: FetchedRow and header word; its way
constexpr uint32_t load_barrier_bytes = 8;
// A lane decodes up to 32 elements, copies 64 bytes of rows that are not coded, or stores vectors of zeros and fills.
constexpr uint32_t lane_elems = 32, lane_bytes = 64, vector_bytes = 16;
// Redirected rows are rare; more of them than fit here take several turns.
constexpr uint32_t spare_bytes = 384;
// Lines that are fetched from host memory pass through the L1 cache, which has what CTAs leave of the memory that both
// share. With less than this, fewer are fetched at a time. Rows of up to 128 bytes need more, because their lines are
// many: slots of 64 bytes take as much of the cache as those of 128.
constexpr size_t l1_bytes = 32 << 10, short_rows_l1_bytes = 64 << 10;
constexpr uint32_t short_row_bytes = 128;

constexpr uint32_t rounded(uint32_t bytes, uint32_t to) { return (bytes + to - 1) / to * to; }

// The distance of slots whose rows are decoded at the same time: lanes load neighbouring words, and words of different
// rows are in different banks of shared memory, as far as possible.
constexpr uint32_t apart_in_banks(uint32_t slot_bytes, uint32_t tile_lanes) {
  const uint32_t unit = std::max(16u, 4 * tile_lanes);
  return rounded(slot_bytes, unit) + (rounded(slot_bytes, unit) / unit % 2 == 0 ? unit : 0);
}

// Whether more warps are worth larger teams, whose warps wait for each other.
constexpr bool is_worth(uint32_t warps, uint32_t warps_of_smaller_teams) {
  return 3 * warps > 4 * warps_of_smaller_teams;
}

// has_spare: redirected and long rows are fetched into memory of their own, and not into the only slot of a step, which
// must then have room for the longest.
GatherShape shape_within(const ShapeInput& input, size_t shared_bytes, bool has_spare) {
  GatherShape shape = {};
  const uint32_t lanes = input.has_only_map ? std::min(input.row_bytes / vector_bytes, fill_lanes)
                         : input.is_coded   ? input.elems / lane_elems
                                            : (input.row_bytes + lane_bytes - 1) / lane_bytes;
  shape.tile_lanes = std::bit_ceil(std::clamp(lanes, 1u, 32u));
  const uint32_t rows = shape.rows = 32 / shape.tile_lanes;

  constexpr uint32_t short_bytes = 64;
  shape.slot_bytes = rounded(input.slot_bytes, 16);
  shape.has_lane_rows = input.has_lanes && !input.is_staged && input.row_bytes == short_bytes &&
                                shape.slot_bytes == short_bytes && input.slot_alignment % short_bytes == 0
                            ? 1
                            : 0;
  const uint32_t skew = input.slot_alignment % 16 == 0 ? 0 : 15;
  const uint32_t fetched_bytes = shape.slot_area = rounded(shape.slot_bytes + skew, 16);
  if (input.is_coded && !input.is_staged && rows > 1) shape.slot_area = apart_in_banks(fetched_bytes, shape.tile_lanes);
  const auto aligned_to =
      static_cast<uint32_t>(std::min<uint64_t>(input.slot_alignment & -input.slot_alignment, line_bytes));
  shape.slot_lines = rounded(line_bytes - std::max(aligned_to, 16u) + fetched_bytes, line_bytes) / line_bytes;

  shape.spare_area = rounded(input.far_bytes, 16);
  shape.spare_rows = has_spare ? std::clamp(spare_bytes / shape.spare_area, 1u, rows) : 0;
  if (!has_spare) shape.slot_area = std::max(shape.slot_area, shape.spare_area);
  const bool has_staged = input.is_coded && !input.has_only_map;
  shape.staged_area = has_staged ? rounded(std::min(input.elems, piece_elems) * input.staged_bytes, 16) : 0;
  // Lanes with rows of their own decode them in their slots.
  if (shape.has_lane_rows != 0) shape.staged_area = 0;
  // The exponents of a piece's escapes are in the same memory before its elements. Loads may go beyond the last one.
  const uint32_t exponent_bytes = piece_elems * (input.staged_bytes == 8 ? 2 : 1) + 16;
  if (has_staged) shape.staged_bytes = rounded(std::max(rows * shape.staged_area, exponent_bytes), 16);
  shape.records_at = rows * shape.slot_area;
  const uint32_t stage_bytes = shape.stage_bytes =
      rounded(shape.records_at + rows * (record_bytes + (input.has_cache ? way_bytes : 0)) + load_barrier_bytes, 16);
  const size_t teams_bytes = shared_bytes - std::min(shared_bytes, size_t{taken_bytes});
  const uint32_t most_warps = input.is_coded ? max_coded_warps : max_raw_warps;
  const uint32_t pieces = (input.elems + piece_elems - 1) / piece_elems;
  // The smallest teams, or larger ones of more warps.
  for (uint32_t team = 1; team == 1 || (input.has_teams && team <= std::min(pieces, most_warps)); team *= 2) {
    const uint32_t sums_bytes = team == 1 ? 0 : rounded(2 * 4 * team, 16);
    const uint32_t fixed_bytes = team * shape.staged_bytes + sums_bytes + shape.spare_rows * shape.spare_area;
    for (uint32_t teams = most_warps / team; is_worth(teams * team, shape.warps); --teams) {
      const auto team_bytes = static_cast<uint32_t>(teams_bytes / teams / line_bytes * line_bytes);
      if (team_bytes < fixed_bytes + 2 * stage_bytes) continue;
      shape.stages = std::min((team_bytes - fixed_bytes) / stage_bytes, max_stages);
      shape.team_warps = team;
      shape.sums_bytes = sums_bytes;
      shape.team_bytes = rounded(fixed_bytes + shape.stages * stage_bytes, line_bytes);
      shape.warps = teams * team;
      break;
    }
  }
  return shape;
}

// The one of two shapes with smaller teams, unless the other has enough more warps; else more warps, else more stages.
GatherShape better(const GatherShape& one, const GatherShape& other) {
  if (one.team_warps > other.team_warps) return better(other, one);
  if (one.team_warps < other.team_warps) return is_worth(other.warps, one.warps) ? other : one;
  if (one.warps != other.warps) return one.warps > other.warps ? one : other;
  return one.stages >= other.stages ? one : other;
}
GatherShape shape_within(const ShapeInput& input, size_t shared_bytes) {
  const GatherShape shape = shape_within(input, shared_bytes, true);
  return shape.rows == 1 ? better(shape, shape_within(input, shared_bytes, false)) : shape;
}

}  // namespace

GatherShape gather_shape(const ShapeInput& input, size_t shared_bytes) {
  const GatherShape largest = shape_within(input, shared_bytes);
  if (input.is_staged) return largest;  // rows come from device memory, not through L1
  const size_t left = input.row_bytes <= short_row_bytes ? short_rows_l1_bytes : l1_bytes;
  const GatherShape modest = shape_within(input, shared_bytes - std::min(shared_bytes, left));
  return 2 * modest.warps < largest.warps ? largest : modest;  // on GPUs with little shared memory
}

}  // namespace narrowcast::store::cuda
