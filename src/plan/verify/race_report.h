// Describes races: both accesses, and why they are not ordered.
#pragma once

#include <string>

#include "plan/verify/knowledge.h"

namespace narrowcast::plan::verify {

class RaceReport {
 public:
  explicit RaceReport(const Knowledge& knowledge) : knowledge_(knowledge) {}

  // The step accesses the operand, and this is not ordered after the earlier access.
  Finding race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier, bool earlier_is_write,
               const Viewer& viewer) const;
  // The step writes packets where an earlier step of the call has written some.
  Finding second_packets(uint32_t flat, const Operand& operand, const Access& earlier) const;
  // The access to a chunk of the rank's input or output can happen after the rank's call.
  Finding user_race(int rank, Buffer buffer, uint32_t chunk, const Access& access, bool is_write) const;

 private:
  Where where(uint32_t plan, uint32_t flat) const;
  TraceStep trace_of(const Access& access) const;
  std::string name_of(const Access& access) const;
  TraceStep reason_of(const Access& earlier, bool is_read, const Viewer& viewer, const Where& at) const;

  const Knowledge& knowledge_;
};

}  // namespace narrowcast::plan::verify
