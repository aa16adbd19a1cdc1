// The parameters of the codec `uniform`.
#pragma once

#include "codec/parameter.h"

namespace narrowcast::codec::uniform {

inline constexpr ParameterField bits_field = {16, 16};

}  // namespace narrowcast::codec::uniform
