// Builders whose rows are encoded by a PieceEncoder.
#include <algorithm>
#include <cstring>

#include "status/error.h"
#include "store/build/builder.h"
#include "store/file/header.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t copied_bytes = 64u << 20;  // of rows that are copied to the host at a time

}  // namespace

ncast_status Builder::encode_with(std::unique_ptr<PieceEncoder> encoder) {
  if (begun_ || finished_ || failed_ || encoder_ != nullptr)
    return fail(NCAST_INVALID_ARGUMENT,
                "ncast_store_builder: rows were added before the device was set, or it was set twice");
  encoder_ = std::move(encoder);
  return NCAST_OK;
}

bool Builder::is_encoded_elsewhere() const {
  return encoder_ != nullptr && plan_.header.layout != file::blocks_layout && plan_.header.uncoded == 0;
}

ncast_status Builder::add_parts(const RowBlock& rows) {
  const bool is_copied = !is_encoded_elsewhere() && encoder_ != nullptr && encoder_->holds(rows);
  uint64_t piece = rows.count;
  if (plan_.header.layout != file::blocks_layout) piece = piece_rows();
  // Equal pieces: a short one would leave little time to write the one before.
  if (is_encoded_elsewhere()) piece = (rows.count - 1) / ((rows.count - 1) / piece + 1) + 1;
  if (is_copied) piece = std::clamp<uint64_t>(copied_bytes / row_bytes(), 1, piece);
  std::vector<uint8_t> copied(is_copied ? std::min(piece, rows.count) * row_bytes() : 0);
  for (uint64_t at = 0; at < rows.count; at += piece) {
    RowBlock part{rows.rows + at * rows.stride, rows.stride, std::min(piece, rows.count - at)};
    if (is_copied) {
      if (ncast_status status = encoder_->copy_to_host(part, row_bytes(), copied.data())) return status;
      part = {copied.data(), row_bytes(), part.count};
    }
    if (ncast_status status = add_part(part)) return status;
  }
  return NCAST_OK;
}

// While a piece is being encoded, this CPU writes the one before.
ncast_status Builder::encode_elsewhere(const RowBlock& rows) {
  if (!encoded_.bytes) {
    const uint64_t bytes = file::segment_bytes + encoder_->piece_bytes();
    encoded_.bytes = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    if (ncast_status status = encoder_->add_memory(encoded_.bytes.get(), bytes)) return status;
  }
  uint8_t* const to = encoded_.bytes.get() + file::segment_bytes;
  if (ncast_status status = encoder_->start(rows, to)) return status;
  const ncast_status written = write_waiting_piece();
  EncodedPiece piece = {};
  if (ncast_status status = encoder_->finish(&piece)) return status;
  if (written != NCAST_OK) return written;
  if (plan_.header.layout == file::packed_layout) {
    end_piece(piece.packed_units * plan_.header.unit);
    return end_payloads({piece.ends, piece.ends + rows.count});
  }
  Overflow overflow;
  uint64_t before = 0;
  for (uint64_t row = 0; row < rows.count; before = piece.ends[row++])
    if (const uint64_t units = piece.ends[row] - before; units != 0)
      overflow.add(rows_ + row, piece.overflow + before * piece.overflow_unit_bytes, units * piece.overflow_unit_bytes,
                   plan_.header.entry_stride);
  if (ncast_status status = redirect(overflow, to)) return status;
  end_piece(rows.count * plan_.header.stride);
  return NCAST_OK;
}

}  // namespace narrowcast::store
