// Starts the background threads of the library.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::bootstrap {

// Starts a thread that blocks all signals, so that they are delivered to the program's threads. `name` has at most 15
// characters. Error: SYSTEM_ERROR.
template <typename Body>
ncast_status start_background_thread(const char* name, Body&& body, std::thread* thread) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  ncast_status status = NCAST_OK;
  try {
    *thread = std::thread(std::forward<Body>(body));
    pthread_setname_np(thread->native_handle(), name);
  } catch (const std::system_error& error) {
    status = fail(NCAST_SYSTEM_ERROR, "cannot start a thread: %s", thread_error_text(error).c_str());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace narrowcast::bootstrap
