#include "store/table/writer_lock.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include "bootstrap/interrupt.h"
#include "status/error.h"

namespace narrowcast::store {
namespace {

// An absolute time, one interval of interruption checks from now.
timespec next_check() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  time.tv_nsec += std::chrono::nanoseconds(bootstrap::interrupt_interval).count();
  if (time.tv_nsec >= 1'000'000'000) {
    time.tv_nsec -= 1'000'000'000;
    ++time.tv_sec;
  }
  return time;
}

}  // namespace

ncast_status WriterLock::initialise() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  const int error = pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return error == 0 ? NCAST_OK : fail(NCAST_SYSTEM_ERROR, "cannot create a lock: %s", std::strerror(error));
}

ncast_status WriterLock::lock() {
  for (;;) {
    const timespec until = next_check();
    const int error = pthread_mutex_timedlock(&mutex, &until);
    if (error == 0) return NCAST_OK;
    if (error == EOWNERDEAD) {
      pthread_mutex_consistent(&mutex);
      return NCAST_OK;
    }
    if (error == EDEADLK) return fail(NCAST_INVALID_ARGUMENT, "this thread is already changing the store");
    if (error != ETIMEDOUT) return fail(NCAST_SYSTEM_ERROR, "cannot lock the store: %s", std::strerror(error));
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
  }
}

}  // namespace narrowcast::store
