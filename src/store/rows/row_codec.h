// Encodes and decodes the rows of a table, one at a time, with a model that was fitted to the table (fit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "narrowcast/types.h"
#include "store/rows/format.h"

namespace narrowcast::store {

struct Model;

// The rows of a table: `elems` values each. Rows have 1 to max_row_bytes bytes.
struct RowShape {
  ncast_dtype dtype;
  uint64_t elems;

  uint64_t row_bytes() const { return elems * ncast_dtype_bytes(dtype); }
  bool operator==(const RowShape&) const = default;
};

// Immutable; copies share the model; all members may be called by several threads. Pointers may be unaligned.
class RowModel {
 public:
  explicit RowModel(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  // Coder `raw`: rows without a model.
  static RowModel raw(const RowShape& shape);

  // Reads a serialised model, which may contain anything. Returns nothing if it is invalid and sets *problem to a
  // message such as "coder 9 is unknown".
  static std::optional<RowModel> parse(std::span<const uint8_t> bytes, std::string* problem);
  // Appends the serialised model.
  void serialise(std::vector<uint8_t>& bytes) const;

  const RowShape& shape() const;
  // The codec in canonical form: "zeros+trim+window".
  std::string text() const;
  // Coder `raw`: rows need neither encode() nor decode(), and their payloads are only longer than the rows.
  bool uncoded() const;
  // The most bytes that a payload can have: that of a row which is stored raw. A multiple of 4.
  size_t bound() const;

  // Encodes row_bytes() bytes at `row`. Returns the bytes of the payload, a multiple of 4, at most bound(). Bytes of
  // the buffer between the payload's end and bound() may be overwritten.
  size_t encode(const uint8_t* row, uint8_t* payload) const;

  // Decodes the payload that consists of a header word and a body. The body may be followed by other bytes: body_bytes
  // is the number of readable bytes, not that of the payload. Both may contain anything. Returns false if they do not
  // follow the format, also if the header word is a redirect; the row is then unspecified. Writes row_bytes() bytes.
  bool decode(uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) const;

  // For tests and tools.
  const Model& model() const { return *model_; }

 private:
  std::shared_ptr<const Model> model_;
};

}  // namespace narrowcast::store
