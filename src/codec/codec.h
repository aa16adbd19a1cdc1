// The table of codecs: look-up, checks and properties.
#pragma once

#include <string>

#include "codec/host_codec.h"
#include "codec/row.h"

namespace narrowcast::codec {

// All codecs of this build. AUTO is not among them.
std::span<const Row> rows();
const HostCodec& host_of(const Row& row);

// By id; NULL if the library has no such codec.
const Row* find_row(ncast_codec codec);

// NCAST_INVALID_ARGUMENT, naming `function`, unless `codec` has a known id, zero in its reserved bits and parameters
// that are in range. Every function that takes a codec calls one of the two.
ncast_status check(const char* function, ncast_codec codec);
ncast_status check_or_auto(const char* function, ncast_codec codec);

// All functions below take a codec that has passed check(), and AUTO only where they say so.

// The same codec with 0 for every parameter that has its default: equal codecs become equal numbers. AUTO stays.
ncast_codec canonical(ncast_codec codec);
// The same codec with the values in effect: no parameter is 0 for "default".
ncast_codec explicit_parameters(ncast_codec codec);

// The codec that values of a type are encoded with: raw for types that the codec does not encode.
ncast_codec effective_codec(ncast_dtype dtype, ncast_codec codec);
// dtype is one that the codec encodes.
BlockType block_type(ncast_dtype dtype, ncast_codec codec);

bool is_exact(ncast_codec codec);
// Wire bytes / raw bytes that the cost model expects; 1 for types that the codec does not encode.
double prior_ratio(ncast_codec codec, ncast_dtype dtype);

// "window", "name:key=value", "auto"; "codec 77" for a number that is not a codec.
std::string describe(ncast_codec codec);

}  // namespace narrowcast::codec
