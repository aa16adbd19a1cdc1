#include "channel/network/connect_streams.h"

#include <memory>
#include <utility>

#include "channel/network/meeting.h"
#include "channel/network/tcp_stream.h"

namespace narrowcast::channel {

ncast_status connect_streams(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                             bootstrap::Limit limit, bootstrap::Limit call_limit, RankSet others,
                             std::span<const std::string> names, Streams* streams) {
  Connections connections;
  if (ncast_status status = connect_ranks(rendezvous, secret, limit, others, names, &connections)) return status;
  streams->resize(connections.size());
  for (size_t rank = 0; rank < connections.size(); ++rank) {
    if (connections[rank] == nullptr) continue;
    find_loss_within(connections[rank]->socket.get(), call_limit);
    if (ncast_status status = TcpStream::make(std::move(connections[rank]), &(*streams)[rank])) return status;
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
