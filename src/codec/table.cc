// The host table of codecs: the rows of codecs.def, each with its binding. The only file that is compiled a second time
// for the tests, with their codecs.
#include "codec/codec.h"

namespace narrowcast::codec {

#define NCAST_CODEC_ROW(id, SYMBOL, name, code, exactness, payload, parameters, types) \
  namespace code {                                                                     \
  extern const HostCodec host;                                                         \
  }
#include "narrowcast/codecs.def"

namespace {

constexpr Row table[] = {
#include "codec/rows.inc"
};

constexpr const HostCodec* hosts[] = {
#define NCAST_CODEC_ROW(id, SYMBOL, name, code, exactness, payload, parameters, types) &code::host,
#include "narrowcast/codecs.def"
};

constexpr bool rows_are_valid() {
  for (const Row& row : table) {
    if (row.id >= NCAST_CODEC_WITHIN || row.types().empty()) return false;
    for (const Row& other : table)
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
static_assert(rows_are_valid(),
              "codecs.def: ids differ; parameters are above 0, fit into 48 bits and have defaults in range; "
              "blocks are multiples of 16");

}  // namespace

std::span<const Row> rows() { return table; }
const HostCodec& host_of(const Row& row) { return *hosts[&row - table]; }

}  // namespace narrowcast::codec
