// The socket of a connection that threads read and write, each in one direction.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "bootstrap/deadline.h"
#include "narrowcast/types.h"

namespace narrowcast::channel {

// Error: SYSTEM_ERROR.
ncast_status make_blocking(int socket);

// Makes the connection end if the peer's host is lost: before a call that waits for it ends at the time limit of calls,
// if that is not too short for probes.
void find_loss_within(int socket, bootstrap::Limit call_limit);

// Removes the first `bytes` bytes, at most all, from the parts of a message.
void skip(std::span<iovec>* parts, size_t bytes);

// Sends all parts, and changes them. Returns 0, or the errno with which the connection has ended.
int send_all(int socket, std::span<iovec> parts);

// Fails with the reason for which the connection to the rank `name` has ended. error: an errno, EBADMSG if what came
// was not valid, 0 if the peer closed it. Returns REMOTE_ERROR, or CORRUPT.
ncast_status fail_of_connection(const std::string& name, int error);

}  // namespace narrowcast::channel
