// AVG's division, which comes before rounding and truncates integers toward zero. One place, so that all ways of reducing
// give the same bits, NaN's too.
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
  // The sum as it is, unless the operation is AVG.
  __device__ __forceinline__ T of(T sum) const {
    if (multiplies_) return static_cast<T>(sum * factor_);
    return divides_ ? divided(sum, ranks_) : sum;
  }

 private:
  int ranks_;
  T factor_ = 1;
  bool multiplies_ = false, divides_ = false;
};

}  // namespace narrowcast::collective::cuda
