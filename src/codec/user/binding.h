// The host implementation of users' codecs: it calls the functions of their descriptions.
#pragma once

#include <string>

#include "codec/host_codec.h"
#include "narrowcast/user_codec.h"

namespace narrowcast::codec::user {

// Makes the implementation of a codec, which lives as long as the process. At most once for an id. cuda_header: lives
// as long; NULL: there is none.
const HostCodec* make_host(const ncast_user_codec_description& description, const CudaHeader* cuda_header);

// The row of a codec whose description is valid. It points to the description.
Row row_of(const ncast_user_codec_description& description);

// What is wrong with a description, or "".
std::string fault_of(const ncast_user_codec_description& description);

}  // namespace narrowcast::codec::user
