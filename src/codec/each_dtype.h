// Value types as template arguments.
#pragma once

#include "narrowcast/types.h"

namespace narrowcast::codec {

// Calls function.operator()<Codec<Dtype>>() for every value type that the codec supports.
template <template <ncast_dtype> typename Codec, typename Function>
void for_each_dtype(Function function) {
  const auto one = [&]<ncast_dtype Dtype>() {
    if constexpr (requires { typename Codec<Dtype>::Scratch; }) function.template operator()<Codec<Dtype>>();
  };
  const auto all = [&]<ncast_dtype... Dtypes>() { (one.template operator()<Dtypes>(), ...); };
  all.template operator()<NCAST_INT8, NCAST_UINT8, NCAST_INT32, NCAST_UINT32, NCAST_INT64, NCAST_UINT64, NCAST_FLOAT16,
                          NCAST_FLOAT32, NCAST_FLOAT64, NCAST_BFLOAT16, NCAST_FLOAT8_E4M3, NCAST_FLOAT8_E5M2>();
}

}  // namespace narrowcast::codec
