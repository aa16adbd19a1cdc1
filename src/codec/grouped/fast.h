// The fast host path of the grouped codecs. It needs no special instructions.
#pragma once

#include "codec/host_codec.h"

namespace narrowcast::codec::grouped {

extern const BlockCoder fast;

}  // namespace narrowcast::codec::grouped
