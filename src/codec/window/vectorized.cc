#include "codec/window/block.h"
namespace narrowcast::codec::window {
const BlockCoder vectorized{[](const format::window::ValueType& t, const uint8_t* v, uint8_t* p) { return reference.encode(t, v, p); },
                            [](const format::window::ValueType& t, const uint8_t* p, size_t n, uint8_t* v) { return reference.decode(t, p, n, v); }};
}
