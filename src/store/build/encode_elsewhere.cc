// Builders whose rows are encoded by a PieceEncoder.
#include <algorithm>
#include <cstring>
#include <utility>

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
  ncast_status added = NCAST_OK;
  for (uint64_t at = 0; at < rows.count && added == NCAST_OK; at += piece) {
    RowBlock part{rows.rows + at * rows.stride, rows.stride, std::min(piece, rows.count - at)};
    if (is_copied) {
      if (ncast_status status = encoder_->copy_to_host(part, row_bytes(), copied.data())) return status;
      part = {copied.data(), row_bytes(), part.count};
    }
    added = add_part(part);
  }
  if (!is_encoded_elsewhere()) return added;
  // Also after an error, because the caller may change the rows.
  const ncast_status released = encoder_->release_rows();
  return added != NCAST_OK ? added : released;
}

// While the encoder works on a piece, this CPU writes the one before. The piece is completed when the next one has been
// started, so the encoder always has work.
ncast_status Builder::encode_elsewhere(const RowBlock& rows) {
  if (ncast_status status = write_waiting_piece()) return status;
  std::unique_ptr<uint8_t[]>& memory = waiting_piece_.bytes;
  if (!memory) {
    const uint64_t bytes = file::segment_bytes + encoder_->piece_bytes();
    memory = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    if (ncast_status status = encoder_->add_memory(memory.get(), bytes)) return status;
  }
  if (ncast_status status = encoder_->start(rows, memory.get() + file::segment_bytes)) return status;
  if (ncast_status status = end_started_piece()) return status;
  started_rows_ = rows.count;
  return NCAST_OK;
}

// Exchanges encoded_ and waiting_piece_.
ncast_status Builder::end_started_piece() {
  if (started_rows_ == 0) {
    std::swap(encoded_, waiting_piece_);
    return NCAST_OK;
  }
  const uint64_t rows = std::exchange(started_rows_, 0), first = rows_ - rows;
  EncodedPiece piece = {};
  if (ncast_status status = encoder_->finish(&piece)) return status;
  if (plan_.header.layout == file::packed_layout) {
    const std::span<uint32_t> ends(piece.ends, rows);  // in units of the piece
    for (uint32_t& end : ends) end += static_cast<uint32_t>(units_);
    if (ncast_status status = end_payloads(piece.packed_units, ends)) return status;
    end_piece(piece.packed_units * plan_.header.unit);
  } else {
    Overflow overflow;
    for (const uint32_t row : piece.overflow_rows) overflow.rows.push_back(first + row);
    overflow.entries = {piece.entries, overflow.rows.size() * plan_.header.entry_stride};
    if (ncast_status status = redirect(std::move(overflow), first)) return status;
    end_piece(rows * plan_.header.stride);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::store
