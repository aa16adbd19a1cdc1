// Encodes rows elsewhere than on this CPU, for a builder.
#pragma once

#include <cstdint>
#include <span>

#include "narrowcast/types.h"
#include "store/build/row_block.h"
#include "store/rows/row_codec.h"

namespace narrowcast::store {

// How the payloads of a table are placed.
struct PayloadLayout {
  uint64_t slot_bytes;   // layout stride; 0: layout packed
  uint64_t entry_bytes;  // layout stride: of an overflow entry, which any payload fits
  uint64_t unit_bytes;   // layout packed: payloads begin at multiples of it
};

// An encoded piece.
struct EncodedPiece {
  // Layout packed.
  uint64_t packed_units;  // of all payloads
  uint32_t* ends;         // of each row's payload in the piece, in units. The caller may change them
  // Layout stride: rows of the piece whose payloads are longer than a slot, ascending. Their slots are zeros, and their
  // payloads are in entries end to end, with zeros behind each.
  std::span<const uint32_t> overflow_rows;
  const uint8_t* entries;
};

// The bytes are those of RowModel::encode(). Calls follow each other. After an error, the object is only destroyed.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;

  // Whether rows are in the device's memory.
  virtual bool holds(const RowBlock& rows) const = 0;
  // Copies rows of any memory to host memory, end to end.
  virtual ncast_status copy_to_host(const RowBlock& rows, uint64_t row_bytes, uint8_t* to) = 0;

  // Before the first piece. The model is not `raw`.
  virtual ncast_status begin(const RowModel& model, const PayloadLayout& layout) = 0;
  // Rows of a piece, at most, and the bytes that their slots or payloads take.
  virtual uint64_t piece_rows() const = 0;
  virtual uint64_t piece_bytes() const = 0;
  // Prepares memory of the host to receive pieces, as long as the encoder exists.
  virtual ncast_status add_memory(uint8_t* memory, uint64_t bytes) = 0;

  // Starts to encode a piece to memory that was added, 16-byte aligned. At most one other piece is not finished.
  virtual ncast_status start(const RowBlock& rows, uint8_t* to) = 0;
  // Waits until the rows of all pieces that were started are not used any more.
  virtual ncast_status release_rows() = 0;
  // Waits for the first piece that is not finished. The result is valid until the next finish().
  virtual ncast_status finish(EncodedPiece* piece) = 0;
};

}  // namespace narrowcast::store
