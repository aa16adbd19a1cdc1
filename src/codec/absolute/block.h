// Host block coders of the codec `abs`: two implementations of one interface.
#pragma once

#include "codec/host_codec.h"

namespace narrowcast::codec::absolute {

// A simple scalar implementation, which tests use as the oracle.
extern const BlockCoder reference;
// Loops that compilers vectorise; produces the same bytes.
extern const BlockCoder fast;

}  // namespace narrowcast::codec::absolute
