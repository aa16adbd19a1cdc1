// The drop-in's own table of codecs.
#include "codec/combine.h"
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
std::string why_not_combined(ncast_codec codec, ncast_codec result_codec) {
  const auto row_of = [](ncast_codec one) {
    const auto* const row = std::ranges::find(codec_rows, codec::id_of(one), &codec::Row::id);
    return row == std::end(codec_rows) ? nullptr : row;
  };
  const codec::Row *const sent = row_of(codec), *const returned = row_of(result_codec);
  if (codec == result_codec || (sent != nullptr && returned != nullptr && codec::combine(*sent, *returned))) return "";
  return "result_codec " + codec_text(result_codec) + " does not combine with codec " + codec_text(codec) + ": " +
         codec::who_combines;
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
