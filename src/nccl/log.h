// Lines on stderr, at the levels of NCCL_DEBUG, chosen by NARROWCAST_DEBUG. Any thread.
#pragma once

namespace narrowcast::nccl {

// Each level prints those before it. WARN unless NARROWCAST_DEBUG says otherwise.
enum class Level { none, version, warn, info, trace };

bool logs(Level level);
void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace narrowcast::nccl
