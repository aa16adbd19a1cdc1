// Texts of the C API.
#pragma once

#include <string>

#include "narrowcast/text.h"
#include "status/error.h"

struct ncast_text {
  std::string text;
};

namespace narrowcast {

// Gives the text that make() returns to the caller. Errors: INVALID_ARGUMENT if `text` is NULL.
template <typename Make>
ncast_status make_text(const char* function, ncast_text** text, Make make) {
  if (text == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: the pointer to the text is NULL", function);
  return guarded(function, [&] {
    *text = new ncast_text{make()};
    return NCAST_OK;
  });
}

}  // namespace narrowcast
