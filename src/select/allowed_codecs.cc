#include "select/allowed_codecs.h"

#include <algorithm>

#include "codec/codec.h"

namespace narrowcast::select {

bool AllowedCodecs::contains(ncast_codec codec) const { return std::ranges::find(codecs, codec) != codecs.end(); }

std::string AllowedCodecs::text() const {
  std::string list;
  for (const ncast_codec codec : codecs) list += (list.empty() ? "" : ", ") + codec::describe(codec);
  return forced ? list + "!" : list;
}

AllowedCodecs allowed_codecs(ncast_codec requested) {
  AllowedCodecs allowed;
  if (requested == NCAST_CODEC_AUTO) {
    for (const codec::Row& row : codec::rows())
      if (row.is_exact() && row.id != NCAST_CODEC_RAW) allowed.codecs.push_back(row.id);
  } else if (requested != NCAST_CODEC_RAW) {
    allowed.codecs = {codec::without_flag(requested)};
    allowed.forced = codec::is_forced(requested);
  }
  return allowed;
}

}  // namespace narrowcast::select
