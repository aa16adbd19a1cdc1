// A stream over TCP.
#pragma once

#include <memory>

#include "bootstrap/tcp_connection.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

class TcpStream final : public Stream {
 public:
  // Error: SYSTEM_ERROR.
  static ncast_status make(std::unique_ptr<bootstrap::Connection> connection, std::unique_ptr<Stream>* stream);

  int send(std::span<iovec> parts) override;
  int receive(std::span<iovec> parts, size_t* bytes) override;
  int receive_all(void* to, size_t bytes) override;
  void shut_down() override;
  std::string describe(int error) const override;

 private:
  explicit TcpStream(std::unique_ptr<bootstrap::Connection> connection) : connection_(std::move(connection)) {}
  int socket() const { return connection_->socket.get(); }

  const std::unique_ptr<bootstrap::Connection> connection_;
};

}  // namespace narrowcast::channel
