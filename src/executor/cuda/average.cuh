// The last step of a reduction before rounding: the division of AVG, which truncates integers toward zero. All kernels
// that reduce share this code, so they produce the same bits, including those of NaNs.
#pragma once

#include <type_traits>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda {

// Turns the sum over the ranks into the result. If the number of ranks is a power of two, AVG of floating-point values
// multiplies instead of dividing: the code is much shorter and the result is the same.
template <typename T>
class Average {
 public:
  __device__ Average(ncast_redop op, int ranks) : ranks_(ranks) {
    if (op != NCAST_AVG) return;
    divides_ = !std::is_floating_point_v<T> || (ranks & (ranks - 1)) != 0;
    if (!divides_) factor_ = T{1} / static_cast<T>(ranks);
  }
  // Whether to call divided() or multiplied().
  __device__ bool divides() const { return divides_; }
  __device__ __forceinline__ T multiplied(T sum) const {
    if constexpr (std::is_floating_point_v<T>) sum *= factor_;
    return canonical(sum);
  }
  __device__ __forceinline__ T divided(T sum) const { return canonical(static_cast<T>(sum / static_cast<T>(ranks_))); }

  // Replaces every float64 NaN by the same NaN, as fp32 arithmetic does: which payload survives an addition depends on
  // the order in which the compiler puts the operands.
  __device__ __forceinline__ static T canonical(T sum) {
    if constexpr (std::is_same_v<T, double>)
      if (sum != sum) return __longlong_as_double(0x7fffffffffffffffll);
    return sum;
  }

 private:
  int ranks_;
  T factor_ = 1;
  bool divides_ = false;
};

}  // namespace narrowcast::executor::cuda
