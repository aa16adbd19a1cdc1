// The end of a reduction, before it is rounded: AVG's division, which truncates integers toward zero. One place, so
// that all ways of reducing give the same bits, NaN's too.
#pragma once

#include <type_traits>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda {

// What becomes of a sum over the ranks. Dividing by a power of two is multiplying, which is much less code and rounds
// alike.
template <typename T>
class Average {
 public:
  __device__ Average(ncast_redop op, int ranks) : ranks_(ranks) {
    if (op != NCAST_AVG) return;
    divides_ = !std::is_floating_point_v<T> || (ranks & (ranks - 1)) != 0;
    if (!divides_) factor_ = T{1} / static_cast<T>(ranks);
  }
  // Which of the two functions that follow it is.
  __device__ bool divides() const { return divides_; }
  __device__ __forceinline__ T multiplied(T sum) const {
    if constexpr (std::is_floating_point_v<T>) sum *= factor_;
    return canonical(sum);
  }
  __device__ __forceinline__ T divided(T sum) const { return canonical(static_cast<T>(sum / static_cast<T>(ranks_))); }

  // A NaN of float64 becomes the one that fp32's arithmetic makes of every NaN: which payload survives an addition
  // depends on the order that the compiler gives to its operands.
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
