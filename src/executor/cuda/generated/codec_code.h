// The device code of a codec, as generated kernels include it.
#pragma once

#include <string>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda::generated {

// The lines that define a codec for one value type, and the name of the class that they define.
struct CodecCode {
  std::string text, type;
};
// codec: with parameters or without; they are not part of the code.
CodecCode code_of_codec(ncast_codec codec, ncast_dtype dtype);

// Replaces the lines that stand for CUDA headers of users' codecs. The headers are inserted as they are, so that the
// compiler's messages have their lines.
std::string with_user_headers(std::string source);

}  // namespace narrowcast::executor::cuda::generated
