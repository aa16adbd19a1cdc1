#include "bootstrap/interrupt.h"

#include <string>

#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

struct ThreadCheck {
  ncast_interrupt_check check = nullptr;
  void* context = nullptr;
  bool running = false;
  uint64_t interruptions = 0;
  ncast_status cause = NCAST_ABORTED;
  std::string message = "interrupted";
};
thread_local ThreadCheck thread_check;

}  // namespace

bool is_interrupted() {
  ThreadCheck& own = thread_check;
  if (own.check == nullptr || own.running) return false;
  own.running = true;
  const bool stop = own.check(own.context) != 0;
  own.running = false;
  if (stop) ++own.interruptions;
  return stop;
}

uint64_t interruptions() { return thread_check.interruptions; }

ncast_status interrupted() { return fail(thread_check.cause, "%s", thread_check.message.c_str()); }

void set_interruption_cause(ncast_status status, const char* message) {
  thread_check.cause = status;
  thread_check.message = message;
}

InterruptScope::InterruptScope(ncast_interrupt_check check, void* context)
    : outer_check_(thread_check.check), outer_context_(thread_check.context) {
  ncast_set_interrupt_check(check, context);
}

InterruptScope::~InterruptScope() {
  ncast_set_interrupt_check(outer_check_, outer_context_);
  set_interruption_cause(NCAST_ABORTED, "interrupted");
}

}  // namespace narrowcast::bootstrap

extern "C" void ncast_set_interrupt_check(ncast_interrupt_check check, void* context) {
  narrowcast::bootstrap::thread_check.check = check;
  narrowcast::bootstrap::thread_check.context = context;
}
