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
bool is_exact(ncast_codec codec) {
  return codec == NCAST_CODEC_AUTO || std::ranges::any_of(codec_rows, [&](const codec::Row& row) {
           return row.id == codec::id_of(codec) && row.is_exact();
         });
}
Dtypes encoded_dtypes(ncast_codec codec) {
  Dtypes dtypes;
  for (const codec::Row& row : codec_rows)
    if (row.id == codec::id_of(codec) || (codec::is_within(codec) && !row.is_exact()))
      for (const ncast_codec_type& type : row.types()) dtypes.set(type.dtype);
  return dtypes;
}
std::string codec_text(ncast_codec codec) { return codec::format(codec_rows, codec); }

}  // namespace narrowcast::nccl
