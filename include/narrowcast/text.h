// Texts that the library makes.
#ifndef NARROWCAST_TEXT_H_
#define NARROWCAST_TEXT_H_

#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// A text that the library has made, such as JSON.
typedef struct ncast_text ncast_text;
// The text, which ends with a zero byte, and its bytes without it. Valid until the text is destroyed.
NCAST_API const char* ncast_text_data(const ncast_text* text);
NCAST_API size_t ncast_text_bytes(const ncast_text* text);
// NULL is allowed.
NCAST_API void ncast_text_destroy(ncast_text* text);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_TEXT_H_
