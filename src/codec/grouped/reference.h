// The scalar implementation of the grouped codecs, the oracle.
#pragma once

#include "codec/host_codec.h"

namespace narrowcast::codec::grouped {

extern const BlockCoder reference;

}  // namespace narrowcast::codec::grouped
