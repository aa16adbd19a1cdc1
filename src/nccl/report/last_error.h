// The message that ncclGetLastError returns after the drop-in failed.
#pragma once

#include <string>

namespace narrowcast::nccl {

// Keeps the message and logs it as a warning.
void set_last_error(const std::string& message);
// NCCL has failed since: its own message is the last one.
void clear_last_error();
// The last message of the process; NULL after clear_last_error(). Valid on this thread until its next call.
const char* last_error();

}  // namespace narrowcast::nccl
