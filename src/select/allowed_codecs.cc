#include "select/allowed_codecs.h"

#include <algorithm>
#include <utility>

#include "codec/codec.h"
#include "select/error_bound.h"

namespace narrowcast::select {

bool AllowedCodecs::contains(ncast_codec codec) const { return std::ranges::find(codecs, codec) != codecs.end(); }

bool AllowedCodecs::has_lossy() const { return !std::ranges::all_of(codecs, codec::is_exact); }

std::string AllowedCodecs::text() const {
  std::string list;
  for (const ncast_codec codec : codecs) list += (list.empty() ? "" : ", ") + codec::describe(codec);
  if (!forced || codecs.empty()) return list;
  return list + (codecs.size() == 1 ? "!" : " (one of them is forced)");
}

AllowedCodecs allowed_codecs(const CallShape& shape) {
  AllowedCodecs allowed;
  const ncast_codec requested = shape.codec;
  const bool has_budget = codec::is_within(requested);
  allowed.forced = codec::is_forced(requested);
  if (requested != NCAST_CODEC_AUTO && !has_budget) {
    if (requested != NCAST_CODEC_RAW) allowed.codecs = {codec::without_flag(requested)};
    return allowed;
  }
  // The lossy codecs add, and have neither extremes nor products.
  const bool adds =
      !reduces(shape.operation) || (shape.redop != NCAST_MIN && shape.redop != NCAST_MAX && shape.redop != NCAST_PROD);
  const bool may_lose = has_budget && adds;
  for (const codec::Row& row : codec::rows()) {
    if (codec::is_of_user(row.id)) continue;
    const bool fits = row.is_exact() || (may_lose && row.type(shape.dtype) != nullptr &&
                                         is_within(codec::relative_of(requested), shape, row.id));
    if (fits && row.id != NCAST_CODEC_RAW) allowed.codecs.push_back(row.id);
  }
  if (has_budget)
    std::ranges::sort(allowed.codecs, {}, [&](ncast_codec id) {
      return std::pair(codec::prior_ratio(id, shape.dtype), id);  // of equals the first of the table
    });
  return allowed;
}

bool can_code(ncast_codec codec, ncast_dtype dtype) { return codec::effective_codec(dtype, codec) != NCAST_CODEC_RAW; }

}  // namespace narrowcast::select
