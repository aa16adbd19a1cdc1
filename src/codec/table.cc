// The host table of codecs: the rows of codecs.def, each with its binding, and those of users' codecs.
#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

#include "codec/codec.h"
#include "narrowcast/user_codec.h"

namespace narrowcast::codec {

#define NCAST_CODEC_ROW(id, SYMBOL, name, code, exactness, payload, parameters, types) \
  namespace code {                                                                     \
  extern const HostCodec host;                                                         \
  }
#include "narrowcast/codecs.def"

namespace {

constexpr Row built_in[] = {
#include "codec/rows.inc"
};
constexpr size_t built_in_count = std::size(built_in), most_rows = built_in_count + NCAST_MOST_USER_CODECS;

// Rows are added at the end and never change, so readers need no lock.
constinit std::array<Row, most_rows> all_rows = [] {
  std::array<Row, most_rows> rows = {};
  std::copy(std::begin(built_in), std::end(built_in), rows.begin());
  return rows;
}();
constinit std::array<const HostCodec*, most_rows> hosts = {
#define NCAST_CODEC_ROW(id, SYMBOL, name, code, exactness, payload, parameters, types) &code::host,
#include "narrowcast/codecs.def"
};
constinit std::atomic<size_t> row_count = built_in_count;
std::mutex adding;  // also protects is_fixed
bool is_fixed = false;

constexpr bool rows_are_valid() {
  for (const Row& row : built_in) {
    if (row.id >= NCAST_FIRST_USER_CODEC || row.types().empty()) return false;
    for (const Row& other : built_in)
      if (&row != &other && row.id == other.id) return false;
    unsigned bits = first_parameter_bit;
    for (const ncast_codec_parameter& parameter : row.parameters()) {
      bits += bits_of(parameter.kind);
      if (parameter.least <= 0 || parameter.least > parameter.default_value || parameter.default_value > parameter.most)
        return false;
      for (const double value : {parameter.least, parameter.most, parameter.default_value})
        if (parameter.kind != NCAST_PARAMETER_REAL &&
            (value > 65535 || value_of(parameter.kind, stored(parameter.kind, value)) != value))
          return false;
    }
    if (bits > end_of_parameters) return false;
    for (const ncast_codec_type& type : row.types())
      if (type.block_bytes % NCAST_FRAME_ALIGN != 0) return false;
  }
  return true;
}
static_assert(
    rows_are_valid(),
    "codecs.def: ids differ and are below 192; parameters are above 0, fit into 48 bits and have defaults in range; "
    "blocks are multiples of 16");

}  // namespace

std::span<const Row> rows() { return {all_rows.data(), row_count.load(std::memory_order_acquire)}; }
const HostCodec& host_of(const Row& row) { return *hosts[static_cast<size_t>(&row - all_rows.data())]; }

std::span<const Row> fixed_rows() {
  const std::lock_guard lock(adding);
  is_fixed = true;
  return rows();
}

std::string add_row(const Row& row, const HostCodec* host) {
  const std::lock_guard lock(adding);
  const size_t count = row_count.load(std::memory_order_relaxed);
  for (const Row& other : rows())
    if (std::string_view(row.name) == other.name) return "another codec has the name " + std::string(row.name);
  if (is_fixed)
    return "codecs can only be registered before the first communicator, explanation or cost model of the process";
  if (count == most_rows) return "the process has registered " + std::to_string(NCAST_MOST_USER_CODECS) + " codecs";
  all_rows[count] = row;
  hosts[count] = host;
  row_count.store(count + 1, std::memory_order_release);
  return {};
}

}  // namespace narrowcast::codec
