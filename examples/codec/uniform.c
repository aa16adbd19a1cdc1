// A codec of one's own: every value of a block becomes a whole number of `bits` bits, a multiple of the block's step.
//
//     cc -O2 -shared -fPIC -o uniform.so -I include examples/codec/uniform.c -lm
//     narrowcast codec check ./uniform.so
//     NARROWCAST_USER_CODECS=./uniform.so narrowcast encode tensors.safetensors --lossy --codec uniform:bits=6
//
// Values are rounded to the nearest multiple after a random number from -dither / 2 to dither / 2 steps has been added,
// unless the dither is the least: with a dither of 1, the mean of a code is the value.
//
// Payload: the largest finite magnitude of the block as a float, 12 bytes of zero, then the codes, `bits` bits each
// from the lowest bit of the first byte. Codes are two's complement. With top = 2^(bits-1): -top is NaN, top - 1 is
// infinity, 1 - top is -infinity, and any other code is a multiple of largest / (top - 2).
#include <math.h>
#include <string.h>

#include "narrowcast/user_codec.h"

enum { HEADER_BYTES = 16 };

static int bits_of(const ncast_user_block* block) { return (int)block->parameters[0]; }
static double dither_of(const ncast_user_block* block) {
  return block->parameters[1] > 1.001e-3 ? block->parameters[1] : 0;  // the least one as a float
}
static double step_of(const ncast_user_block* block, float largest) {
  return (double)largest / ((1 << (bits_of(block) - 1)) - 2);
}

// A bfloat16 is the upper half of a float.
static float load(const ncast_user_block* block, const void* values, uint32_t index) {
  const size_t bytes = block->dtype == NCAST_BFLOAT16 ? 2 : 4;
  float value = 0;
  memcpy((char*)&value + 4 - bytes, (const char*)values + index * bytes, bytes);
  return value;
}

// Rounds to nearest, ties to even.
static void store(const ncast_user_block* block, float value, void* values, uint32_t index) {
  const size_t bytes = block->dtype == NCAST_BFLOAT16 ? 2 : 4;
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  if (bytes == 2) bits = isnan(value) ? 0x7fc00000 : bits + 0x7fff + (bits >> 16 & 1);
  memcpy((char*)values + index * bytes, (char*)&bits + 4 - bytes, bytes);
}

// The finalizer of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
static uint64_t mixed(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
  return bits ^ bits >> 31;
}

// A number from -0.5 to 0.5.
static double random_number(const ncast_user_context* context, uint32_t index) {
  const uint64_t of_call = mixed((uint64_t)context->call << 32 | context->stage << 16 | context->rank);
  const uint64_t bits = mixed((context->first_elem + index) * 0x9e3779b97f4a7c15ull + of_call);
  return (double)(int64_t)(bits >> 40) / (1 << 24) - 0.5;
}

static int code_of(int top, float value, double step, double random) {
  if (isnan(value)) return -top;
  if (isinf(value)) return value > 0 ? top - 1 : 1 - top;
  if (step == 0) return 0;
  // Without the limit, a random number could make the largest value infinite.
  return (int)fmin(fmax(nearbyint(value / step + random), 2 - top), top - 2);
}

static size_t payload_bytes(const ncast_user_block* block) {
  return HEADER_BYTES + (size_t)block->block_elems * (size_t)bits_of(block) / 8;
}

static size_t encode(const ncast_user_block* block, const ncast_user_context* context, const void* values,
                     void* payload) {
  float largest = 0;
  for (uint32_t i = 0; i < block->block_elems; ++i) {
    const float value = load(block, values, i);
    if (isfinite(value)) largest = fmaxf(largest, fabsf(value));
  }
  memset(payload, 0, HEADER_BYTES);
  memcpy(payload, &largest, sizeof largest);
  const int bits = bits_of(block), top = 1 << (bits - 1);
  const double step = step_of(block, largest), dither = dither_of(block);
  uint8_t* out = (uint8_t*)payload + HEADER_BYTES;
  uint32_t pending = 0;  // bits that do not fill a byte yet
  int pending_bits = 0;
  for (uint32_t i = 0; i < block->block_elems; ++i) {
    const int code = code_of(top, load(block, values, i), step, dither * random_number(context, i));
    pending |= ((uint32_t)code & ((1u << bits) - 1)) << pending_bits;
    for (pending_bits += bits; pending_bits >= 8; pending_bits -= 8, pending >>= 8) *out++ = (uint8_t)pending;
  }
  return payload_bytes(block);
}

static int decode(const ncast_user_block* block, const void* payload, size_t size, void* values) {
  if (size != payload_bytes(block)) return 0;
  float largest = 0;
  memcpy(&largest, payload, sizeof largest);
  if (!isfinite(largest) || signbit(largest)) return 0;
  const int bits = bits_of(block), top = 1 << (bits - 1);
  const double step = step_of(block, largest);
  const uint8_t* in = (const uint8_t*)payload + HEADER_BYTES;
  uint32_t pending = 0;
  int pending_bits = 0;
  for (uint32_t i = 0; i < block->block_elems; ++i) {
    for (; pending_bits < bits; pending_bits += 8) pending |= (uint32_t)*in++ << pending_bits;
    int code = (int)(pending & ((1u << bits) - 1));
    pending >>= bits;
    pending_bits -= bits;
    if (code >= top) code -= 2 * top;
    float value = (float)(code * step);
    if (code == -top) value = NAN;
    if (code == top - 1 || code == 1 - top) value = code > 0 ? INFINITY : -INFINITY;
    store(block, value, values, i);
  }
  return 1;
}

// Half a step, half the dither, and the rounding to the value type.
static double error_bound(const ncast_user_block* block, double largest) {
  const int mantissa_bits = block->dtype == NCAST_BFLOAT16 ? 7 : 23;
  return step_of(block, (float)largest) * (1 + dither_of(block)) / 2 + ldexp(largest, -mantissa_bits - 1) +
         ldexp(1, -126 - mantissa_bits);
}

static const ncast_codec_parameter parameters[] = {
    {"bits", NCAST_PARAMETER_INTEGER, 4, 12, 8, NULL},
    {"dither", NCAST_PARAMETER_REAL, 1e-3, 1, 1e-3, NULL},
};
static const ncast_codec_type types[] = {{NCAST_FLOAT32, 4096, 0.254}, {NCAST_BFLOAT16, 4096, 0.504}};

const ncast_user_codec_description* ncast_user_codec(void);
const ncast_user_codec_description* ncast_user_codec(void) {
  static const ncast_user_codec_description description = {
      .struct_bytes = sizeof description,
      .version = NCAST_USER_CODEC_VERSION,
      .id = 200,
      .name = "uniform",
      .exact = 0,
      .fixed_payload = 1,
      .parameter_count = 2,
      .type_count = 2,
      .parameters = parameters,
      .types = types,
      .payload_bytes = payload_bytes,
      .encode = encode,
      .decode = decode,
      .error_bound = error_bound,
  };
  return &description;
}
