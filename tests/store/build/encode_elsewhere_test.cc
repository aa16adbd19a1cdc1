// Builders whose rows are encoded by a PieceEncoder write the files of other builders.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "../table/tables.h"
#include "status/error.h"
#include "store/build/builder.h"

using namespace narrowcast::tests;
namespace store = narrowcast::store;

namespace {

constexpr uint64_t rows_per_piece = 37;

// A device whose memory is on this host: `device` rows can only be read by the encoder.
class FakeDevice : public store::PieceEncoder {
 public:
  struct Log {
    uint64_t pieces = 0, copied_rows = 0, releases = 0;
    uint64_t fails_at = ~uint64_t{0};  // the number of the piece
  };
  FakeDevice(Log* log, const std::vector<uint8_t>& on_device) : log_(log), on_device_(on_device) {}

  bool holds(const store::RowBlock& rows) const override {
    return rows.rows >= on_device_.data() && rows.rows < on_device_.data() + on_device_.size();
  }
  ncast_status copy_to_host(const store::RowBlock& rows, uint64_t row_bytes, uint8_t* to) override {
    for (uint64_t i = 0; i < rows.count; ++i) std::memcpy(to + i * row_bytes, rows.rows + i * rows.stride, row_bytes);
    log_->copied_rows += rows.count;
    return NCAST_OK;
  }
  ncast_status begin(const store::RowModel& model, const store::PayloadLayout& layout) override {
    CHECK(!model.uncoded());
    model_ = model;
    layout_ = layout;
    return NCAST_OK;
  }
  uint64_t piece_rows() const override { return rows_per_piece; }
  uint64_t piece_bytes() const override {
    const uint64_t unit = std::max<uint64_t>(layout_.unit_bytes, 1);
    return rows_per_piece * (layout_.slot_bytes != 0 ? layout_.slot_bytes : (model_->bound() + unit - 1) / unit * unit);
  }
  ncast_status add_memory(uint8_t* memory, uint64_t bytes) override {
    memory_.push_back({memory, memory + bytes});
    return NCAST_OK;
  }
  ncast_status start(const store::RowBlock& rows, uint8_t* to) override {
    if (log_->pieces++ == log_->fails_at) return narrowcast::fail(NCAST_CUDA_ERROR, "the device is lost");
    CHECK(rows.count <= rows_per_piece);
    const uint64_t bytes = piece_bytes();
    CHECK(std::ranges::any_of(memory_, [&](const auto& range) { return to >= range[0] && to + bytes <= range[1]; }));
    started_.push_back({rows, {}, to});
    CHECK(started_.size() <= 2);
    return NCAST_OK;
  }
  ncast_status release_rows() override {
    ++log_->releases;
    for (Started& piece : started_) piece.take_rows(model_->shape().row_bytes());
    return NCAST_OK;
  }
  // Everything happens as late as possible.
  ncast_status finish(store::EncodedPiece* piece) override {
    REQUIRE(!started_.empty());
    Started started = std::move(started_.front());
    started_.pop_front();
    const uint64_t row_bytes = model_->shape().row_bytes();
    started.take_rows(row_bytes);
    ends_.clear();
    overflow_rows_.clear();
    packed_.clear();
    const bool has_slots = layout_.slot_bytes != 0;
    const uint64_t unit = has_slots ? layout_.entry_bytes : layout_.unit_bytes;
    for (uint64_t i = 0; i < started.rows.count; ++i) {
      std::vector<uint8_t> payload(model_->bound());
      payload.resize(model_->encode(started.taken.data() + i * row_bytes, payload.data()));
      if (!has_slots || payload.size() > layout_.slot_bytes) {
        packed_.insert(packed_.end(), payload.begin(), payload.end());
        packed_.resize((packed_.size() + unit - 1) / unit * unit);
        payload.clear();
        overflow_rows_.push_back(static_cast<uint32_t>(i));
      }
      ends_.push_back(static_cast<uint32_t>(packed_.size() / unit));
      payload.resize(layout_.slot_bytes);
      std::ranges::copy(payload, started.to + i * layout_.slot_bytes);
    }
    if (!has_slots) std::ranges::copy(packed_, started.to);
    if (has_slots)
      *piece = {0, nullptr, overflow_rows_, packed_.data()};
    else
      *piece = {packed_.size() / unit, ends_.data(), {}, nullptr};
    return NCAST_OK;
  }

 private:
  struct Started {
    store::RowBlock rows;
    std::vector<uint8_t> taken;
    uint8_t* to;

    void take_rows(uint64_t row_bytes) {
      for (uint64_t i = taken.size() / row_bytes; i < rows.count; ++i)
        taken.insert(taken.end(), rows.rows + i * rows.stride, rows.rows + i * rows.stride + row_bytes);
    }
  };

  Log* log_;
  const std::vector<uint8_t>& on_device_;
  std::optional<store::RowModel> model_;
  store::PayloadLayout layout_ = {};
  std::vector<std::array<uint8_t*, 2>> memory_;
  std::deque<Started> started_;
  std::vector<uint32_t> ends_, overflow_rows_;
  std::vector<uint8_t> packed_;
};

// Rows of bfloat16 that shrink, except for some.
std::vector<uint8_t> mixed_rows(uint64_t count, uint64_t elems) {
  std::mt19937_64 random(count);
  std::vector<uint8_t> rows(count * elems * 2);
  for (uint64_t i = 0; i < count * elems; ++i) {
    const bool is_random = i / elems % 9 == 5;
    const auto value = static_cast<uint16_t>(is_random ? random() : 0x3c00 + random() % 0x280);
    std::memcpy(&rows[2 * i], &value, sizeof value);
  }
  return rows;
}

struct Built {
  std::vector<uint8_t> file;
  std::string report;
};

// Overwrites the rows after each call, as the caller of a builder may.
Built build(const store::BuildOptions& options, std::vector<uint8_t>& rows, uint64_t row_bytes, uint64_t stride,
            bool has_sample, std::unique_ptr<store::PieceEncoder> encoder) {
  const MemoryFile file;
  Built built;
  {
    store::Builder builder(file.descriptor(), options);
    if (encoder != nullptr) REQUIRE(builder.encode_with(std::move(encoder)) == NCAST_OK);
    const uint64_t count = (rows.size() + stride - row_bytes) / stride;
    if (has_sample) REQUIRE(builder.sample({rows.data(), stride, count}) == NCAST_OK);
    for (uint64_t at = 0; at < count; at += 113) {
      REQUIRE(builder.add({rows.data() + at * stride, stride, std::min<uint64_t>(113, count - at)}) == NCAST_OK);
      std::fill(rows.begin() + static_cast<std::ptrdiff_t>(at * stride),
                rows.begin() + static_cast<std::ptrdiff_t>(std::min(count, at + 113) * stride - stride + row_bytes),
                0x5a);
    }
    REQUIRE(builder.finish(&built.report) == NCAST_OK);
  }
  built.file = file.content();
  return built;
}

store::BuildOptions options_of(const char* codec, ncast_store_layout layout, uint64_t elems) {
  store::BuildOptions options;
  options.dtype = NCAST_BFLOAT16;
  options.layout = layout;
  options.row_shape = {elems};
  options.codec = codec;
  options.threads = 2;
  return options;
}

}  // namespace

TEST_CASE("a builder writes the same file, whatever encodes the rows") {
  struct Case {
    const char* codec;
    ncast_store_layout layout;
    bool is_encoded_elsewhere;
  };
  const std::vector<uint8_t> nothing;
  for (const Case& one : {Case{"window", NCAST_STORE_STRIDE, true}, Case{"window", NCAST_STORE_PACKED, true},
                          Case{"zeros+trim", NCAST_STORE_PACKED, true}, Case{"raw", NCAST_STORE_STRIDE, false},
                          Case{"auto", NCAST_STORE_BLOCKS, false}})
    for (const uint64_t count : {1u, 36u, 37u, 1000u})
      for (const bool has_sample : {false, true})
        for (const bool is_on_device : {false, true}) {
          constexpr uint64_t elems = 150, row_bytes = 2 * elems, stride = 2 * row_bytes;
          std::vector<uint8_t> rows = mixed_rows(2 * count - 1, elems), same_rows = rows;
          const store::BuildOptions options = options_of(one.codec, one.layout, elems);
          const Built expected = build(options, same_rows, row_bytes, stride, has_sample, nullptr);
          FakeDevice::Log log;
          const Built found = build(options, rows, row_bytes, stride, has_sample,
                                    std::make_unique<FakeDevice>(&log, is_on_device ? rows : nothing));
          CAPTURE(one.codec);
          CAPTURE(count);
          CHECK(found.file == expected.file);
          CHECK(found.report == expected.report);
          CHECK((log.pieces != 0) == one.is_encoded_elsewhere);
          CHECK((log.releases != 0) == one.is_encoded_elsewhere);
          CHECK((log.copied_rows != 0) == is_on_device);
        }
}

TEST_CASE("a builder whose device fails reports it and ends") {
  const std::vector<uint8_t> rows = mixed_rows(500, 64);
  const MemoryFile file;
  FakeDevice::Log log;
  log.fails_at = 2;
  store::Builder builder(file.descriptor(), options_of("window", NCAST_STORE_STRIDE, 64));
  REQUIRE(builder.encode_with(std::make_unique<FakeDevice>(&log, rows)) == NCAST_OK);
  CHECK(builder.add({rows.data(), 128, 500}) == NCAST_CUDA_ERROR);
  CHECK(log.pieces == 3);
  CHECK(log.releases == 1);
  std::string report;
  CHECK(builder.add({rows.data(), 128, 500}) == NCAST_INVALID_ARGUMENT);
  CHECK(builder.finish(&report) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("the device of a builder is set once, before the first rows") {
  const std::vector<uint8_t> rows = mixed_rows(50, 64);
  const MemoryFile file;
  FakeDevice::Log log;
  const store::BuildOptions options = options_of("window", NCAST_STORE_STRIDE, 64);
  store::Builder twice(file.descriptor(), options);
  CHECK(twice.encode_with(std::make_unique<FakeDevice>(&log, rows)) == NCAST_OK);
  CHECK(twice.encode_with(std::make_unique<FakeDevice>(&log, rows)) == NCAST_INVALID_ARGUMENT);
  store::Builder late(file.descriptor(), options);
  REQUIRE(late.add({rows.data(), 128, 50}) == NCAST_OK);
  CHECK(late.encode_with(std::make_unique<FakeDevice>(&log, rows)) == NCAST_INVALID_ARGUMENT);
}
