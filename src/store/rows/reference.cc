// The coders as specified in docs/format/rows.md, one bit or value at a time. It is the oracle for the fast coders, so
// it shares their constants but none of their code.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "store/rows/row_coder.h"
#include "store/rows/window_reference.h"

namespace narrowcast::store {
namespace {

// The bits of a payload: bit p is bit p mod 32 of word p div 32, the header word first.
class BitWriter {
 public:
  explicit BitWriter(int first_bit) : bits_(static_cast<size_t>(first_bit)) {}
  void put(uint64_t value, int count) {
    for (int bit = 0; bit < count; ++bit) bits_.push_back((value >> bit & 1) != 0);
  }
  void append(const BitWriter& other) { bits_.insert(bits_.end(), other.bits_.begin(), other.bits_.end()); }
  size_t size() const { return bits_.size(); }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> bytes(aligned4((bits_.size() + 7) / 8));
    for (size_t i = 0; i < bits_.size(); ++i)
      bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | (bits_[i] ? 1 : 0) << i % 8);
    return bytes;
  }

 private:
  std::vector<bool> bits_;
};

class BitReader {
 public:
  BitReader(uint32_t header, const uint8_t* body, size_t body_bytes, int first_bit)
      : next_(static_cast<size_t>(first_bit)) {
    bytes_.resize(header_bytes + body_bytes);
    std::memcpy(bytes_.data(), &header, header_bytes);
    std::copy_n(body, body_bytes, bytes_.data() + header_bytes);
  }
  // 0 beyond the end; then ok() is false.
  uint64_t get(int count) {
    uint64_t value = 0;
    for (int bit = 0; bit < count; ++bit, ++next_) {
      if (next_ / 8 >= bytes_.size()) ok_ = false;
      if (ok_) value |= uint64_t{bytes_[next_ / 8]} >> next_ % 8 << 63 >> (63 - bit);
    }
    return value;
  }
  // A payload ends with a whole word.
  bool ok() const { return ok_ && aligned4((next_ + 7) / 8) <= bytes_.size(); }

 private:
  std::vector<uint8_t> bytes_;
  size_t next_;
  bool ok_ = true;
};

uint64_t low_ones(int count) { return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

uint64_t load(const uint8_t* bytes, int count) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(count));
  return value;
}

// Removes the constant bits. Returns false if they differ.
bool trimmed(const Model& model, uint64_t value, uint64_t* coded) {
  const Trim& trim = model.trim;
  const int above = trim.low_bits + model.coded_bits();
  const uint64_t low = value & low_ones(trim.low_bits);
  const uint64_t high = above == 64 ? 0 : value >> above;
  *coded = trim.low_bits == 64 ? 0 : value >> trim.low_bits & low_ones(model.coded_bits());
  return low == trim.low && high == trim.high;
}

uint64_t restored(const Model& model, uint64_t coded) {
  const Trim& trim = model.trim;
  const int above = trim.low_bits + model.coded_bits();
  uint64_t value = trim.low;
  if (trim.low_bits < 64) value |= coded << trim.low_bits;
  if (above < 64) value |= trim.high << above;
  return value;
}

// Without a zero map, `present` is all true. Returns false if an element does not follow the trim.
bool split_row(const Model& model, const uint8_t* row, std::vector<bool>& present, std::vector<uint64_t>& coded) {
  for (uint64_t i = 0; i < model.shape.elems; ++i) {
    const uint64_t value = load(row + i * static_cast<uint64_t>(model.elem_bytes()), model.elem_bytes());
    present.push_back(!model.has_zeros || value != 0);
    if (!present.back()) continue;
    uint64_t bits = 0;
    if (!trimmed(model, value, &bits)) return false;
    coded.push_back(bits);
  }
  return true;
}

void join_row(const Model& model, const std::vector<bool>& present, const std::vector<uint64_t>& coded, uint8_t* row) {
  size_t next = 0;
  for (uint64_t i = 0; i < model.shape.elems; ++i) {
    const uint64_t value = present[i] ? restored(model, coded[next++]) : 0;
    std::memcpy(row + i * static_cast<uint64_t>(model.elem_bytes()), &value, static_cast<size_t>(model.elem_bytes()));
  }
}

std::vector<uint8_t> encode_plain(const Model& model, const uint8_t* row) {
  std::vector<bool> present;
  std::vector<uint64_t> coded;
  if (!split_row(model, row, present, coded)) return {};
  BitWriter writer(first_coder_bit);
  if (model.has_zeros)
    for (const bool bit : present) writer.put(bit ? 1 : 0, 1);
  for (const uint64_t bits : coded) writer.put(bits, model.coded_bits());
  return writer.bytes();
}

bool decode_plain(const Model& model, BitReader reader, uint8_t* row) {
  std::vector<bool> present(model.shape.elems, true);
  if (model.has_zeros)
    for (size_t i = 0; i < present.size(); ++i) present[i] = reader.get(1) != 0;
  std::vector<uint64_t> coded(static_cast<size_t>(std::count(present.begin(), present.end(), true)));
  for (uint64_t& bits : coded) bits = reader.get(model.coded_bits());
  if (!reader.ok()) return false;
  join_row(model, present, coded, row);
  return true;
}

std::vector<uint8_t> encode_window(const Model& model, const uint8_t* row) {
  std::vector<bool> present;
  std::vector<uint64_t> coded;
  if (!split_row(model, row, present, coded)) return {};
  uint32_t header = 0;
  std::vector<uint8_t> body;
  if (!encode_window_values(window_layout(model.shape.dtype, model.trim.low_bits), coded, &header, body)) return {};
  BitWriter writer(0);
  writer.put(header, 32);
  if (model.has_zeros)
    for (const bool bit : present) writer.put(bit ? 1 : 0, 1);
  const std::vector<uint8_t> front = writer.bytes();
  std::vector<uint8_t> payload(front.size() + body.size());
  std::copy(body.begin(), body.end(), std::copy(front.begin(), front.end(), payload.begin()));
  return payload;
}

bool decode_window(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) {
  std::vector<bool> present(model.shape.elems, true);
  if (model.has_zeros) {
    const size_t map_bytes = aligned4((present.size() + 7) / 8);
    if (body_bytes < map_bytes) return false;
    for (size_t i = 0; i < present.size(); ++i) present[i] = (body[i / 8] >> i % 8 & 1) != 0;
    body += map_bytes;
    body_bytes -= map_bytes;
  }
  std::vector<uint64_t> coded(static_cast<size_t>(std::count(present.begin(), present.end(), true)));
  if (!decode_window_values(window_layout(model.shape.dtype, model.trim.low_bits), header, body, body_bytes, coded))
    return false;
  join_row(model, present, coded, row);
  return true;
}

// What a cluster has for a chunk.
struct ClusterChunk {
  uint64_t offset;
  uint64_t mask, values;
  uint64_t trimmed;  // bits that the trim removes
};

// Calls visit(chunk) for each chunk.
template <typename Visit>
void for_each_chunk(const Model& model, uint32_t cluster, Visit visit) {
  const uint64_t row_bytes = model.shape.row_bytes();
  const int bytes = static_cast<int>(model.chunk_bytes);
  for (uint64_t offset = 0; offset < row_bytes; offset += model.chunk_bytes) {
    const uint64_t at = cluster * row_bytes + offset;
    uint64_t trimmed = 0;
    for (int bit = 0; bit < 8 * bytes; ++bit) {
      const int of_elem = static_cast<int>((8 * offset + static_cast<uint64_t>(bit)) % (8 * model.elem_bytes()));
      if (of_elem < model.trim.low_bits || of_elem >= model.elem_bits() - model.trim.high_bits)
        trimmed |= uint64_t{1} << bit;
    }
    visit(ClusterChunk{offset, load(&model.masks[at], bytes), load(&model.values[at], bytes), trimmed});
  }
}

// Nothing if a chunk does not follow the trim.
std::optional<BitWriter> encode_cluster(const Model& model, uint32_t cluster, const uint8_t* row) {
  const int chunk_bytes = static_cast<int>(model.chunk_bytes);
  std::vector<bool> present, participates;
  BitWriter fields(0);
  bool follows = true;
  for_each_chunk(model, cluster, [&](const ClusterChunk& chunk) {
    const uint64_t bits = load(row + chunk.offset, chunk_bytes);
    present.push_back(!model.has_zeros || bits != 0);
    if (!present.back()) return;
    participates.push_back((bits & chunk.mask) == chunk.values);
    const uint64_t omitted = participates.back() ? chunk.mask : chunk.trimmed;
    follows = follows && (bits & chunk.trimmed) == (chunk.values & chunk.trimmed);
    for (int bit = 0; bit < 8 * chunk_bytes; ++bit)
      if ((omitted >> bit & 1) == 0) fields.put(bits >> bit & 1, 1);
  });
  if (!follows) return std::nullopt;
  BitWriter writer(first_coder_bit);
  writer.put(cluster, model.cluster_bits());
  if (model.has_zeros)
    for (const bool bit : present) writer.put(bit ? 1 : 0, 1);
  for (const bool bit : participates) writer.put(bit ? 1 : 0, 1);
  writer.append(fields);
  return writer;
}

std::vector<uint8_t> encode_invariant(const Model& model, const uint8_t* row) {
  std::optional<BitWriter> best;
  for (uint32_t cluster = 0; cluster < model.clusters; ++cluster) {
    std::optional<BitWriter> found = encode_cluster(model, cluster, row);
    if (found && (!best || found->size() < best->size())) best = std::move(found);
  }
  return best ? best->bytes() : std::vector<uint8_t>();
}

bool decode_invariant(const Model& model, BitReader reader, uint8_t* row) {
  const int chunk_bytes = static_cast<int>(model.chunk_bytes);
  const uint64_t cluster = reader.get(model.cluster_bits());
  if (cluster >= model.clusters) return false;
  std::vector<bool> present(model.chunks(), true), participates(model.chunks(), false);
  if (model.has_zeros)
    for (size_t i = 0; i < present.size(); ++i) present[i] = reader.get(1) != 0;
  for (size_t i = 0; i < present.size(); ++i)
    if (present[i]) participates[i] = reader.get(1) != 0;
  std::vector<uint8_t> decoded(model.shape.row_bytes());
  size_t index = 0;
  for_each_chunk(model, static_cast<uint32_t>(cluster), [&](const ClusterChunk& chunk) {
    const size_t i = index++;
    if (!present[i]) return;
    const uint64_t omitted = participates[i] ? chunk.mask : chunk.trimmed;
    uint64_t bits = chunk.values & omitted;
    for (int bit = 0; bit < 8 * chunk_bytes; ++bit)
      if ((omitted >> bit & 1) == 0) bits |= reader.get(1) << bit;
    std::memcpy(&decoded[chunk.offset], &bits, static_cast<size_t>(chunk_bytes));
  });
  if (!reader.ok()) return false;
  std::copy(decoded.begin(), decoded.end(), row);
  return true;
}

size_t encode(const Model& model, const uint8_t* row, uint8_t* payload) {
  std::vector<uint8_t> bytes;
  switch (model.coder) {
    case Coder::RAW: break;
    case Coder::PLAIN: bytes = encode_plain(model, row); break;
    case Coder::WINDOW: bytes = encode_window(model, row); break;
    case Coder::INVARIANT: bytes = encode_invariant(model, row); break;
  }
  if (bytes.size() >= header_bytes + aligned4(model.shape.row_bytes())) return 0;
  std::copy(bytes.begin(), bytes.end(), payload);
  return bytes.size();
}

bool decode(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) {
  const auto reader = [&] { return BitReader(header, body, body_bytes, first_coder_bit); };
  switch (model.coder) {
    case Coder::RAW: return false;
    case Coder::PLAIN: return decode_plain(model, reader(), row);
    case Coder::WINDOW: return decode_window(model, header, body, body_bytes, row);
    case Coder::INVARIANT: return decode_invariant(model, reader(), row);
  }
  return false;
}

}  // namespace

const RowCoder reference{encode, decode};

size_t store_raw(uint64_t row_bytes, const uint8_t* row, uint8_t* payload) {
  std::memcpy(payload, &raw_bit, header_bytes);
  std::memcpy(payload + header_bytes, row, row_bytes);
  const size_t bytes = header_bytes + aligned4(row_bytes);
  std::memset(payload + header_bytes + row_bytes, 0, bytes - header_bytes - row_bytes);
  return bytes;
}

}  // namespace narrowcast::store
