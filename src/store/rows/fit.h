// Fits the model of a row codec to a table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/rows/row_codec.h"
#include "store/rows/stride.h"

namespace narrowcast::store {

// The rows of a table.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Copies rows first .. first + count - 1 to `rows`, end to end. May throw; fit_rows() does not catch it.
  virtual void read(uint64_t first, uint64_t count, uint8_t* rows) = 0;
};

struct FitOptions {
  // What `auto` minimises: bytes stored in this layout.
  enum class Layout : uint8_t { automatic, stride, packed };
  Layout layout = Layout::automatic;
  // The source is itself a sample, and all of its rows are used. Otherwise at most 10% are, or 256 if these are more.
  bool whole_source = false;
  // Rows of the table, of which the source is a sample; 0: unknown, taken to be many.
  uint64_t table_rows = 0;
  int threads = 1;  // that fit candidates at the same time; 0: as many as CPUs that this thread may use
};

struct RowFit {
  RowModel model;
  std::vector<uint32_t> payload_bytes;  // of each row of the sample
  std::string report;                   // JSON, see docs/format/rows.md
};

// Fits `codec`, such as "auto", "trim+window" or "invariant:chunk=4,clusters=8", to `rows` rows of the source, at least
// one. Deterministic. Returns nothing if the codec cannot encode such rows, and sets *problem to a message.
std::optional<RowFit> fit_rows(const RowShape& shape, RowSource& source, uint64_t rows, std::string_view codec,
                               const FitOptions& options, std::string* problem);

}  // namespace narrowcast::store
