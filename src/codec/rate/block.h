// Host block coders of the codec `rate`: two implementations of one interface.
#pragma once

#include "codec/host_codec.h"

namespace narrowcast::codec::rate {

// A simple scalar implementation, which tests use as the oracle.
extern const BlockCoder reference;
// Codes a bit plane of four integers with one look-up; produces the same bytes.
extern const BlockCoder fast;

}  // namespace narrowcast::codec::rate
