#include "store/rows/row_codec.h"

#include <array>
#include <cstring>

#include "store/rows/fast.h"
#include "store/rows/model.h"
#include "store/rows/row_coder.h"

namespace narrowcast::store {
namespace {

// The serialised model: these fields, then for each cluster its mask and its values.
struct Serialised {
  uint8_t version;
  uint8_t dtype;
  uint8_t coder;
  uint8_t stages;  // bit 0: zeros, bit 1: trim
  uint32_t elems;
  uint8_t low_bits;
  uint8_t high_bits;
  uint8_t chunk_bytes;
  uint8_t reserved;
  uint32_t clusters;
  uint64_t low;
  uint64_t high;
};
static_assert(sizeof(Serialised) == 32 && std::has_unique_object_representations_v<Serialised>);
constexpr uint8_t version = 1;
constexpr uint8_t zeros_bit = 1, trim_bit = 2;

RowCoder best_coder(const Model& model) {
  static const InstructionSet best = instruction_sets().back();
  return fast_coder(model, best);
}

}  // namespace

RowModel RowModel::raw(const RowShape& shape) {
  auto model = std::make_shared<Model>();
  model->shape = shape;
  return RowModel(std::move(model));
}

std::optional<RowModel> RowModel::parse(std::span<const uint8_t> bytes, std::string* problem) {
  const auto fail = [&](std::string message) {
    *problem = std::move(message);
    return std::nullopt;
  };
  Serialised fields;
  if (bytes.size() < sizeof fields) return fail("the model has " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&fields, bytes.data(), sizeof fields);
  if (fields.version != version)
    return fail("the model has version " + std::to_string(fields.version) + ", and this library reads " +
                std::to_string(version));
  if (fields.reserved != 0 || (fields.stages & ~(zeros_bit | trim_bit)) != 0) return fail("reserved bits are set");

  auto model = std::make_shared<Model>();
  model->shape = {static_cast<ncast_dtype>(fields.dtype), fields.elems};
  model->coder = static_cast<Coder>(fields.coder);
  model->has_zeros = (fields.stages & zeros_bit) != 0;
  model->has_trim = (fields.stages & trim_bit) != 0;
  model->trim = {fields.low_bits, fields.high_bits, fields.low, fields.high};
  model->chunk_bytes = fields.chunk_bytes;
  model->clusters = fields.clusters;
  std::span<const uint8_t> masks = bytes.subspan(sizeof fields);
  const uint64_t row_bytes = model->shape.row_bytes();
  // Before the masks are copied: elems and clusters are below 2^32, so the products do not overflow. Rows without bytes
  // would fit any number of clusters.
  if (model->shape.elems > max_row_bytes || masks.size() != uint64_t{2} * model->clusters * row_bytes ||
      (row_bytes == 0 && model->clusters != 0))
    return fail("the model has " + std::to_string(bytes.size()) + " bytes, which do not fit its fields");
  for (uint32_t cluster = 0; cluster < model->clusters; ++cluster) {
    const auto mask = masks.first(row_bytes), values = masks.subspan(row_bytes, row_bytes);
    model->masks.insert(model->masks.end(), mask.begin(), mask.end());
    model->values.insert(model->values.end(), values.begin(), values.end());
    masks = masks.subspan(2 * row_bytes);
  }
  std::string found = problem_of(*model);
  if (!found.empty()) return fail(std::move(found));
  find_whole_masks(*model);
  return RowModel(std::move(model));
}

void RowModel::serialise(std::vector<uint8_t>& bytes) const {
  const Model& model = *model_;
  const Serialised fields{
      .version = version,
      .dtype = static_cast<uint8_t>(model.shape.dtype),
      .coder = static_cast<uint8_t>(model.coder),
      .stages = static_cast<uint8_t>((model.has_zeros ? zeros_bit : 0) | (model.has_trim ? trim_bit : 0)),
      .elems = static_cast<uint32_t>(model.shape.elems),
      .low_bits = static_cast<uint8_t>(model.trim.low_bits),
      .high_bits = static_cast<uint8_t>(model.trim.high_bits),
      .chunk_bytes = static_cast<uint8_t>(model.chunk_bytes),
      .reserved = 0,
      .clusters = model.clusters,
      .low = model.trim.low,
      .high = model.trim.high,
  };
  const auto raw = std::bit_cast<std::array<uint8_t, sizeof fields>>(fields);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  const auto row_bytes = static_cast<std::ptrdiff_t>(model.shape.row_bytes());
  for (std::ptrdiff_t cluster = 0; cluster < static_cast<std::ptrdiff_t>(model.clusters); ++cluster)
    for (const std::vector<uint8_t>* part : {&model.masks, &model.values}) {
      const auto begin = part->begin() + cluster * row_bytes;
      bytes.insert(bytes.end(), begin, begin + row_bytes);
    }
}

const RowShape& RowModel::shape() const { return model_->shape; }

std::string RowModel::text() const {
  const Model& model = *model_;
  std::string text;
  if (model.has_zeros) text += "zeros+";
  if (model.has_trim) text += "trim+";
  if (model.coder == Coder::PLAIN && !text.empty()) {
    text.pop_back();
    return text;
  }
  text += name_of(model.coder);
  if (model.coder == Coder::INVARIANT) {
    text += ":chunk=" + std::to_string(model.chunk_bytes);
    text += ",clusters=" + std::to_string(model.clusters);
  }
  return text;
}

bool RowModel::uncoded() const { return model_->coder == Coder::RAW; }

size_t RowModel::bound() const { return header_bytes + aligned4(model_->shape.row_bytes()); }

size_t RowModel::encode(const uint8_t* row, uint8_t* payload) const {
  const size_t bytes = best_coder(*model_).encode(*model_, row, payload);
  return bytes != 0 ? bytes : store_raw(model_->shape.row_bytes(), row, payload);
}

bool RowModel::decode(uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) const {
  if ((header & place_mask) != place_here) return false;
  if ((header & raw_bit) == 0) return best_coder(*model_).decode(*model_, header, body, body_bytes, row);
  const size_t row_bytes = model_->shape.row_bytes();
  if (header != raw_bit || body_bytes < row_bytes) return false;
  std::memcpy(row, body, row_bytes);
  return true;
}

}  // namespace narrowcast::store
