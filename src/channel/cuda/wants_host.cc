#include "channel/cuda/wants_host.h"

#include <cstdlib>
#include <cstring>

namespace narrowcast::channel {

bool wants_host_memory() {
  const char* const wish = std::getenv("NARROWCAST_P2P");
  return wish != nullptr && std::strcmp(wish, "0") == 0;
}

}  // namespace narrowcast::channel
