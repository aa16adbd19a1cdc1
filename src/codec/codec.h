// The table of codecs: lookup, checks and properties.
#pragma once

#include <string>

#include "codec/host_codec.h"
#include "codec/row.h"

namespace narrowcast::codec {

// All codecs of this build, then the registered ones of users. AUTO is not among them.
std::span<const Row> rows();
const HostCodec& host_of(const Row& row);
// The same. No more codecs can be registered after it.
std::span<const Row> fixed_rows();
// Adds the codec of a user, whose id no other has. Pointers in the row stay valid, as does `host`. Returns why that is
// not possible, or "".
std::string add_row(const Row& row, const HostCodec* host);

// Finds a codec by its id. NULL if the library has no such codec.
const Row* find_row(ncast_codec codec);

// Checks that `codec` has a known id, zeros in its reserved bits, and parameters in range. Every function with a codec
// argument calls one of these. Error: INVALID_ARGUMENT; the message begins with `function`.
ncast_status check(const char* function, ncast_codec codec);
// The codec of a call: it may also be AUTO, WITHIN, or forced.
ncast_status check_of_call(const char* function, ncast_codec codec);

// Checks that kernels can exist for the codec of a call. Error: UNSUPPORTED for the codecs of users that have no CUDA
// header.
ncast_status check_on_gpu(const char* function, ncast_codec codec);
// The same for frames and slots. Error: UNSUPPORTED for all codecs of users.
ncast_status check_in_gpu_frames(const char* function, ncast_codec codec);

// The functions below require a codec that has passed check(). They accept the codec of a call only if stated.

// The same codec with 0 for every parameter that has its default, so that equal codecs are equal numbers. Accepts the
// codec of a call.
ncast_codec canonical(ncast_codec codec);
// The same codec with the default's value instead of 0 for "default".
ncast_codec explicit_parameters(ncast_codec codec);

// The codec with which values of a type are encoded: raw if the codec does not support the type.
ncast_codec effective_codec(ncast_dtype dtype, ncast_codec codec);
// The codec must support dtype.
BlockType block_type(ncast_dtype dtype, ncast_codec codec);

// Accepts the codec of a call: whether it allows only exact codecs.
bool is_exact(ncast_codec codec);
// The ratio, wire bytes / raw bytes, that the cost model assumes. 1 if the codec does not support the type.
double prior_ratio(ncast_codec codec, ncast_dtype dtype);

// "window", "name:key=value!" or "auto"; "codec 77" for a number that is not a codec. Accepts any number.
std::string describe(ncast_codec codec);

}  // namespace narrowcast::codec
