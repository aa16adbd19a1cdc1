// What a rank does with its own memory between the calls that make up a call of two levels, in the order of a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "executor/factor.h"
#include "narrowcast/comm.h"

namespace narrowcast::executor {

// A box of values: planes x rows x elems. The values of a row are contiguous.
struct Box {
  uint64_t planes, rows, elems;
};
// From the first value of a plane or row to that of the next, in values.
struct Strides {
  uint64_t plane, row;
};

class LocalWork {
 public:
  virtual ~LocalWork() = default;

  // Memory for intermediate values, which the calls of a communicator share.
  virtual ncast_status allocate(size_t bytes, void** memory) = 0;

  // enter() makes the stream wait for the previous call, which may be on a different stream; leave() ends a call.
  virtual ncast_status enter(ncast_stream stream) = 0;
  virtual ncast_status leave(ncast_stream stream) = 0;

  // Calls on side streams, numbered from 0, run beside each other.
  static constexpr int side_streams = 8;
  virtual ncast_stream side_stream(int number) const = 0;
  // Whether so many CTAs, of several communicators, may run at the same time: they must leave as many SMs to a
  // communicator of the user as those of a single one do.
  virtual bool may_overlap(uint32_t ctas) const = 0;
  // Makes a stream wait for all that another one had when this mark was set. mark: 0 or 1.
  virtual ncast_status set_mark(int mark, ncast_stream stream) = 0;
  virtual ncast_status wait_for_mark(int mark, ncast_stream stream) = 0;

  virtual ncast_status clear(void* memory, size_t bytes, ncast_stream stream) = 0;
  virtual ncast_status copy(const void* from, Strides from_strides, void* to, Strides to_strides, Box box,
                            ncast_dtype dtype, ncast_stream stream) = 0;

  // to[i] = factor * from[i], rounded to dtype.
  virtual ncast_status scale(const void* from, void* to, uint64_t count, ncast_dtype dtype, const Factor& factor,
                             ncast_stream stream) = 0;
  // Converts values to the type of their accumulator, exactly.
  virtual ncast_status widen(const void* from, void* to, uint64_t count, ncast_dtype dtype, ncast_stream stream) = 0;
  // Divides accumulators by `ranks` if op is AVG, and rounds them to dtype.
  virtual ncast_status finish(const void* from, void* to, uint64_t count, ncast_dtype dtype, ncast_redop op, int ranks,
                              ncast_stream stream) = 0;

  // Calls of `other` that follow in the stream do not run if a call of `comm` before them has failed: they would pass
  // on values that have not arrived.
  virtual ncast_status stop_after_failure(ncast_comm* comm, ncast_comm* other, ncast_stream stream) = 0;
};

}  // namespace narrowcast::executor
