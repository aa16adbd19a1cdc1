// For programs: marks in the record of calls.
#include "nccl/entry/guarded.h"
#include "nccl/report/call_record.h"
#include "nccl/settings/settings.h"

extern "C" {
// The program begins a step. Does nothing without NARROWCAST_RECORD.
__attribute__((visibility("default"))) void narrowcast_nccl_mark_step();
}

using namespace narrowcast::nccl;

void narrowcast_nccl_mark_step() {
  guarded([] {
    start_recording(settings().record);
    record_mark();
    return success;
  });
}
