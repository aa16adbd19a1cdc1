// The coder `raw` of rows: slots are the rows.
#pragma once

#include "team.cuh"

namespace narrowcast::store::cuda {

template <typename TeamType = Alone>
struct RawRow {
  using Team = TeamType;
  static constexpr bool has_header = false;
};

}  // namespace narrowcast::store::cuda
