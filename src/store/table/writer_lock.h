// The lock of the writers of a table, which may be in different processes.
#pragma once

#include <pthread.h>

#include "narrowcast/types.h"

namespace narrowcast::store {

// Lies in the memory of the table. If its holder dies, the next writer gets it.
struct WriterLock {
  pthread_mutex_t mutex;

  ncast_status initialise();
  // Errors: INVALID_ARGUMENT if this thread holds it already, ABORTED after an interruption.
  ncast_status lock();
  void unlock() { pthread_mutex_unlock(&mutex); }
};

}  // namespace narrowcast::store
