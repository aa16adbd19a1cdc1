// Fits the model of a row codec to a table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/rows/row_codec.h"
#include "store/rows/sample.h"
#include "store/rows/stride.h"

namespace narrowcast::store {

struct FitOptions {
  // What `auto` minimises: bytes stored in this layout.
  enum class Layout : uint8_t { automatic, stride, packed };
  Layout layout = Layout::automatic;
  // Rows of the table, of which the sample is a part; 0: unknown, taken to be many.
  uint64_t table_rows = 0;
  int threads = 1;  // that fit candidates at the same time; 0: as many as CPUs that this thread may use
};

struct RowFit {
  RowModel model;
  std::vector<uint32_t> payload_bytes;  // of each row of the sample
  std::string report;                   // JSON, see docs/format/rows.md
};

// Fits `codec`, such as "auto", "trim+window" or "invariant:chunk=4,clusters=8", to all rows of the sample, at least
// one. Deterministic. Returns nothing if the codec cannot encode such rows, and sets *problem to a message.
std::optional<RowFit> fit_rows(const RowShape& shape, const Sample& sample, std::string_view codec,
                               const FitOptions& options, std::string* problem);

// A ratio as reports show it: "0.750".
std::string ratio_text(double ratio);

}  // namespace narrowcast::store
