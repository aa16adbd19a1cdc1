// The drop-in's own table of codecs. Compiled twice, as src/codec/table.cc: the tests have one with more rows.
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

constexpr codec::Row codec_rows[] = {
#include "codec/rows.inc"
};

}  // namespace

codec::ParsedCodec parse_codec(std::string_view text) { return codec::parse(codec_rows, text); }
std::string codec_text(ncast_codec codec) { return codec::format(codec_rows, codec); }

}  // namespace narrowcast::nccl
