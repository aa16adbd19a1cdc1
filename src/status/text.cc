#include "status/text.h"

extern "C" {

const char* ncast_text_data(const ncast_text* text) { return text == nullptr ? "" : text->text.c_str(); }
size_t ncast_text_bytes(const ncast_text* text) { return text == nullptr ? 0 : text->text.size(); }
void ncast_text_destroy(ncast_text* text) { delete text; }

}  // extern "C"
