// The libraries of users' codecs that this process has registered.
#pragma once

#include <string>

namespace narrowcast::codec::user {

// "none", or names and digests: the same text on two ranks if they have registered the same libraries.
std::string registered_codecs();

}  // namespace narrowcast::codec::user
