// The coder `raw` of rows: slots are the rows.
#pragma once

namespace narrowcast::store::cuda {

struct RawRow {
  static constexpr bool has_header = false;
};

}  // namespace narrowcast::store::cuda
