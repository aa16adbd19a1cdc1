// Which rows a team reads, and in which order. A team takes batches of up to 32 rows, of which each lane has one, and
// reads them in steps.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "gather_arguments.h"

namespace narrowcast::store::cuda {

// Batches that are a team's from the start. The teams of a CTA have batches that follow each other: an SM reads
// neighbouring pages at the same time, which shares translations, and its L1 cache has the rows that are asked for
// often.
template <typename Team>
class OwnBatches {
 public:
  // count: of the rows of all teams. rows: of a step. is_split: each team has rows that follow each other, and as many
  // steps as the others.
  __device__ OwnBatches(uint32_t count, uint32_t rows, bool is_split, const Team& team, uint32_t lane, uint32_t*)
      : count_(count), left_(count), rows_(rows) {
    const uint32_t teams_of_cta = blockDim.x / 32 / team.warps(), teams = gridDim.x * teams_of_cta;
    const uint32_t number = blockIdx.x * teams_of_cta + team.number();
    batch_rows_ = 32;
    apart_ = batch_rows_;
    if (is_split) {
      const uint32_t steps = (count_ + rows_ - 1) / rows_;
      const uint32_t first = static_cast<uint32_t>(uint64_t{steps} * number / teams) * rows_;
      count_ = min(static_cast<uint32_t>(uint64_t{steps} * (number + 1) / teams) * rows_, count_);
      left_ = count_ - first;
    } else {
      // Large batches cost less, but each team should have several.
      while (batch_rows_ > rows_ && uint64_t{4} * teams * batch_rows_ > count_) batch_rows_ /= 2;
      apart_ = teams * batch_rows_;
      skip(left_, number * batch_rows_);
    }
    look_left_ = left_;
    skip(look_left_, lane < batch_rows_ ? lane : ~0u);
  }

  __device__ uint32_t batch_rows() const { return batch_rows_; }  // a power of two, and a multiple of a step's
  __device__ bool has_step() const { return left_ != 0; }
  __device__ void end_step() {
    in_batch_ += rows_;
    bool is_last = in_batch_ == batch_rows_;
    // This saves the kernels of FixedLanes the register of in_batch_; other kernels need fewer with it. Batches begin
    // at multiples of their rows, unless they follow each other.
    if constexpr (Team::has_fixed_lanes) is_last = ((count_ - left_ + rows_) & (batch_rows_ - 1)) == 0;
    if (is_last) in_batch_ = 0;
    skip(left_, rows_ + (is_last ? apart_ - batch_rows_ : 0));
  }
  // Whether this lane has a row in the next batch, and its position in the selection.
  __device__ bool has_row() const { return look_left_ != 0; }
  __device__ uint32_t position() const { return count_ - look_left_; }
  // Goes on to the batch after that.
  __device__ void take() { skip(look_left_, apart_); }

 private:
  // left: of the rows, down to none.
  __device__ static void skip(uint32_t& left, uint32_t rows) { left -= min(left, rows); }

  uint32_t count_;      // of the call, or up to the last row of this team
  uint32_t left_;       // rows from the current step on, down to 0: of this team, and those of others between
  uint32_t look_left_;  // rows from this lane's in the next batch on
  uint32_t rows_, batch_rows_;
  uint32_t apart_;         // rows from one batch of the team to the next
  uint32_t in_batch_ = 0;  // rows of the current batch before the current step
};

// Batches of one step that the warps of a CTA take when they need one; each lane has a row. Warps with batches of their
// own get ahead of others, so that the rows that are read at a time are in more pages than the GPU has translations
// for, and short rows wait for these. Rows that are asked for often, however, are read by all warps at the same time,
// instead of from the L1 cache beside rows of host memory.
class SharedBatches {
 public:
  // count: of rows. taken: the number of batches that the warps of the CTA have taken, in shared memory.
  template <typename Team>
  __device__ SharedBatches(uint32_t count, uint32_t, bool, const Team&, uint32_t lane, uint32_t* taken)
      : count_(count), lane_(lane), taken_(taken) {
    take();
  }

  __device__ static uint32_t batch_rows() { return rows; }
  __device__ bool has_step() const { return steps_ != 0; }
  __device__ void end_step() { --steps_; }
  __device__ bool has_row() const { return lane_ < count_ - first_; }
  __device__ uint32_t position() const { return first_ + lane_; }
  __device__ void take() {
    uint32_t number = 0;
    if (lane_ == 0) number = atomicAdd(taken_, 1u);
    number = __shfl_sync(device::all_lanes, number, 0);
    constexpr uint32_t neighbours = 16;  // batches of a CTA that follow each other
    const uint64_t batch = (uint64_t{number / neighbours} * gridDim.x + blockIdx.x) * neighbours + number % neighbours;
    first_ = static_cast<uint32_t>(min(batch * rows, uint64_t{count_}));
    if (first_ != count_) ++steps_;
  }

 private:
  static constexpr uint32_t rows = 32;
  uint32_t count_, first_ = 0;  // rows of the call, and those before the next batch
  uint32_t steps_ = 0;          // of the batches taken, from the current one on
  uint32_t lane_;
  uint32_t* taken_;
};

}  // namespace narrowcast::store::cuda
