// The end of a reduction, before it is rounded: AVG's division, which truncates integers toward zero. One place, so that
// all ways of reducing give the same bits, NaN's too.
#pragma once

#include <type_traits>

#include "narrowcast/types.h"

namespace narrowcast::collective::cuda {

template <typename T>
__device__ __noinline__ inline T divided(T sum, int ranks) {
  return static_cast<T>(sum / static_cast<T>(ranks));
}

// What becomes of a sum over the ranks. Dividing by a power of two is multiplying, which is much less code and rounds alike.
template <typename T>
class Average {
 public:
  __device__ Average(ncast_redop op, int ranks) : ranks_(ranks) {
    if (op != NCAST_AVG) return;
    multiplies_ = std::is_floating_point_v<T> && (ranks & (ranks - 1)) == 0;
    divides_ = !multiplies_;
    if (multiplies_) factor_ = T{1} / static_cast<T>(ranks);
  }
  // The sum as it is, unless the operation is AVG. A NaN of float64 becomes the one that fp32's arithmetic makes of every
  // NaN: which payload survives an addition depends on the order that the compiler gives to its operands.
  __device__ __forceinline__ T of(T sum) const {
    if (multiplies_) sum = static_cast<T>(sum * factor_);
    if (divides_) sum = divided(sum, ranks_);
    if constexpr (std::is_same_v<T, double>)
      if (sum != sum) return __longlong_as_double(0x7fffffffffffffffll);
    return sum;
  }

 private:
  int ranks_;
  T factor_ = 1;
  bool multiplies_ = false, divides_ = false;
};

}  // namespace narrowcast::collective::cuda
