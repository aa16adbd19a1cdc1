// Where this process listens.
#pragma once

#include <sys/socket.h>

#include <vector>

namespace narrowcast::testing {

inline std::vector<sockaddr_storage> listening_places() {
  std::vector<sockaddr_storage> places;
  for (int fd = 3; fd < 256; ++fd) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) continue;
    sockaddr_storage place;
    bytes = sizeof place;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&place), &bytes) == 0) places.push_back(place);
  }
  return places;
}

}  // namespace narrowcast::testing
