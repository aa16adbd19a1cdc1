// The drop-in's own table of codecs. Compiled twice, as src/codec/table.cc: the tests have one with more rows.
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

constexpr codec::Row codec_rows[] = {
#include "codec/rows.inc"
};

}  // namespace

codec::ParsedCodec parse_codec(std::string_view text) { return codec::parse(codec_rows, text); }
std::vector<ncast_codec> exact_codecs() {
  std::vector<ncast_codec> codecs;
  for (const codec::Row& row : codec_rows)
    if (row.is_exact() && row.id != NCAST_CODEC_RAW) codecs.push_back(row.id);
  return codecs;
}
std::string codec_text(ncast_codec codec) { return codec::format(codec_rows, codec); }

}  // namespace narrowcast::nccl
