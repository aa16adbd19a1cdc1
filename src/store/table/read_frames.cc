// Reads rows of layout blocks: ranges of the flattened tensor, from the frames that contain them.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "narrowcast/codec.h"
#include "store/file/header.h"
#include "store/table/damage.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

// The frames of a table.
class Frames {
 public:
  explicit Frames(Table& table)
      : table_(table),
        offsets_(reinterpret_cast<const uint64_t*>(table.view.offsets)),
        count_(file::frames_of(table.header)),
        value_bytes_(ncast_dtype_bytes(static_cast<ncast_dtype>(table.header.dtype))),
        frame_bytes_(table.view.stride * value_bytes_),
        all_bytes_(table.header.rows * table.view.row_bytes) {}

  uint64_t count() const { return count_; }
  uint64_t begin_of(uint64_t frame) const { return frame * frame_bytes_; }
  uint64_t end_of(uint64_t frame) const { return std::min(all_bytes_, begin_of(frame + 1)); }
  uint64_t frame_at(uint64_t byte) const { return byte / frame_bytes_; }
  uint64_t frame_bytes() const { return frame_bytes_; }

  // Decodes a whole frame.
  bool decode(uint64_t frame, uint8_t* values) const {
    const uint64_t begin = offsets_[frame], end = offsets_[frame + 1];
    // Others may be writing to the file that is mapped.
    if (begin >= end || end > table_.view.data_bytes) return false;
    if (!table_.checks.are_good(file::data, begin, end)) return false;
    const uint64_t bytes = end_of(frame) - begin_of(frame);
    ncast_frame_info info = {};
    info.struct_bytes = sizeof info;
    return ncast_decode(table_.view.data + begin, end - begin, 0, values, bytes, &info) == NCAST_OK &&
           info.dtype == static_cast<ncast_dtype>(table_.header.dtype) && info.raw_bytes == bytes &&
           info.wire_bytes == end - begin;
  }

 private:
  Table& table_;
  const uint64_t* offsets_;
  uint64_t count_, value_bytes_, frame_bytes_, all_bytes_;
};

// Copies ranges of the values, and keeps the last frame that was needed in part.
class RangeReader {
 public:
  explicit RangeReader(const Frames& frames) : frames_(frames) {}

  bool read(uint64_t begin, uint64_t end, uint8_t* out) {
    bool valid = true;
    while (begin < end) {
      const uint64_t frame = frames_.frame_at(begin);
      const uint64_t frame_begin = frames_.begin_of(frame), stop = std::min(end, frames_.end_of(frame));
      if (begin == frame_begin && stop == frames_.end_of(frame)) {
        valid = frames_.decode(frame, out) && valid;
      } else {
        if (!buffer_) buffer_.reset(new uint8_t[frames_.frame_bytes()]);
        if (!has_frame_ || frame_ != frame) {
          frame_ = frame;
          has_frame_ = true;
          is_valid_ = frames_.decode(frame, buffer_.get());
        }
        valid = is_valid_ && valid;
        std::memcpy(out, buffer_.get() + (begin - frame_begin), stop - begin);
      }
      out += stop - begin;
      begin = stop;
    }
    return valid;
  }

 private:
  const Frames& frames_;
  std::unique_ptr<uint8_t[]> buffer_;
  bool has_frame_ = false, is_valid_ = false;
  uint64_t frame_ = 0;
};

// Visits the rows that a damaged frame contains a part of, in order. bytes_of(frame): which bytes [begin, end) of the
// rows the frame contains.
template <typename BytesOf, typename Visit>
void for_each_damaged_row(const std::vector<uint8_t>& is_damaged, uint64_t row_bytes, BytesOf bytes_of, Visit visit) {
  uint64_t next = 0;
  for (uint64_t frame = 0; frame < is_damaged.size(); ++frame) {
    if (is_damaged[frame] == 0) continue;
    const auto [begin, end] = bytes_of(frame);
    for (next = std::max(next, begin / row_bytes); next * row_bytes < end; ++next) visit(next);
  }
}

}  // namespace

ncast_status read_frames(const char* function, Table& table, const RowList& list, uint64_t count, uint8_t* out,
                         uint64_t out_stride, int threads) {
  const uint64_t row_bytes = table.view.row_bytes;
  const Frames frames(table);
  Damage damage;
  table.counters.rows_read += count;
  const size_t workers = reading_threads(threads, count * row_bytes);
  if (list.indices == nullptr && list.step == 1 && out_stride == row_bytes && count != 0) {
    // One range of values: a piece per frame.
    const uint64_t begin = list.first * row_bytes, end = begin + count * row_bytes;
    const uint64_t first = frames.frame_at(begin);
    // The part of a frame, in bytes of `out`.
    const auto bytes_of = [&](uint64_t piece) {
      return std::pair(std::max(begin, frames.begin_of(first + piece)) - begin,
                       std::min(end, frames.end_of(first + piece)) - begin);
    };
    std::vector<uint8_t> is_damaged(frames.frame_at(end - 1) - first + 1);
    threads::for_each(is_damaged.size(), workers, [&](size_t piece) {
      const auto [low, high] = bytes_of(piece);
      RangeReader reader(frames);
      is_damaged[piece] = reader.read(begin + low, begin + high, out + low) ? 0 : 1;
    });
    for_each_damaged_row(is_damaged, row_bytes, bytes_of, [&](uint64_t row) {
      std::memset(out + row * row_bytes, 0, row_bytes);
      damage.note(row, list.first + row);
    });
    return damage.report(function, table);
  }
  const uint64_t piece_rows = std::max<uint64_t>(1, frames.frame_bytes() / row_bytes);
  threads::for_each(static_cast<size_t>((count + piece_rows - 1) / piece_rows), workers, [&](size_t piece) {
    RangeReader reader(frames);
    for (uint64_t i = piece * piece_rows; i < std::min(count, (piece + 1) * piece_rows); ++i) {
      uint8_t* const row = out + i * out_stride;
      if (reader.read(list[i] * row_bytes, (list[i] + 1) * row_bytes, row)) continue;
      std::memset(row, 0, row_bytes);
      damage.note(i, list[i]);
    }
  });
  return damage.report(function, table);
}

std::string codec_text(const Table& table) {
  if (table.model) return table.model->text();
  ncast_frame_info info = {};
  info.struct_bytes = sizeof info;
  // A table of blocks states its codec in its frames.
  std::optional<BusErrorScope> scope;
  if (table.mapped != nullptr) scope.emplace();
  if (table.view.data_bytes == 0 || ncast_inspect(table.view.data, table.view.data_bytes, &info) != NCAST_OK)
    return "raw";
  return codec::describe(info.codec);
}

std::vector<uint64_t> damaged_rows_of_frames(Table& table, size_t threads) {
  const Frames frames(table);
  std::vector<uint8_t> is_damaged(frames.count());
  threads::for_each(is_damaged.size(), threads, [&](size_t frame) {
    const std::unique_ptr<uint8_t[]> values(new uint8_t[frames.frame_bytes()]);
    is_damaged[frame] = frames.decode(frame, values.get()) ? 0 : 1;
  });
  std::vector<uint64_t> rows;
  for_each_damaged_row(
      is_damaged, table.view.row_bytes,
      [&](uint64_t frame) { return std::pair(frames.begin_of(frame), frames.end_of(frame)); },
      [&](uint64_t row) { rows.push_back(row); });
  return rows;
}

}  // namespace narrowcast::store
