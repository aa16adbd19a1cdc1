// Text of generated sources.
#pragma once

#include <string>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda::generated {

// printf to a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Lines one level deeper.
std::string indented(const std::string& lines);

const char* boolean(bool value);
// The enumerators of the C API.
const char* name_of(ncast_redop op);
std::string name_of(ncast_dtype dtype);

}  // namespace narrowcast::executor::cuda::generated
