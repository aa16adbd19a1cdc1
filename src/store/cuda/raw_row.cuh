// The coder `raw` of rows: slots are the rows.
#pragma once

#include "team.cuh"

namespace narrowcast::store::cuda {

struct RawRow {
  using Team = Alone;
  static constexpr bool has_header = false;
};

}  // namespace narrowcast::store::cuda
