// Both ends of a connection and of a stream, in this process.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bootstrap/tcp_connection.h"
#include "channel/network/carrier.h"
#include "channel/network/message_stream.h"
#include "channel/network/plugin_stream.h"
#include "channel/network/tcp_stream.h"
#include "channel/network/ucx_stream.h"
#include "channel/network/ucx_worker.h"
#include "support/ranks.h"

namespace narrowcast::testing {

// Over loopback.
struct ConnectionPair {
  std::unique_ptr<bootstrap::Connection> first = std::make_unique<bootstrap::Connection>(),
                                         second = std::make_unique<bootstrap::Connection>();

  ConnectionPair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&place);
    socklen_t bytes = sizeof place;
    EXPECT(bind(listener, address, bytes) == 0);
    EXPECT(listen(listener, 1) == 0);
    EXPECT(getsockname(listener, address, &bytes) == 0);
    EXPECT(first->socket.open([] { return socket(AF_INET, SOCK_STREAM, 0); }));
    EXPECT(connect(first->socket.get(), address, bytes) == 0);
    EXPECT(second->socket.open([&] { return accept(listener, nullptr, nullptr); }));
    close(listener);
    bootstrap::set_up_socket(first->socket.get());
    bootstrap::set_up_socket(second->socket.get());
  }
};

inline std::unique_ptr<channel::Stream> tcp_stream(std::unique_ptr<bootstrap::Connection> connection) {
  std::unique_ptr<channel::Stream> stream;
  EXPECT_OK(channel::TcpStream::make(std::move(connection), &stream));
  return stream;
}

inline std::shared_ptr<channel::UcxWorker> worker_of(const channel::UcxLibrary& library) {
  std::shared_ptr<channel::UcxWorker> worker;
  EXPECT_OK(channel::UcxWorker::create(library, &worker));
  return worker;
}

// Over what NARROWCAST_NET names.
struct StreamPair {
  std::unique_ptr<channel::Stream> first, second;
  ncast_status failure = NCAST_OK;  // to connect

  // secret: that of the first end is {}.
  explicit StreamPair(const bootstrap::WorldId& secret = {}) {
    ConnectionPair pair;
    channel::Carrier carrier;
    EXPECT_OK(channel::find_carrier(channel::wanted_network(), &carrier));
    std::unique_ptr<channel::MessageStream> one, other;
    if (carrier.plugin != nullptr) {
      one = std::make_unique<channel::PluginStream>(*carrier.plugin, 0, std::move(pair.first));
      other = std::make_unique<channel::PluginStream>(*carrier.plugin, 1, std::move(pair.second));
    } else if (carrier.ucx != nullptr) {
      one = std::make_unique<channel::UcxStream>(worker_of(*carrier.ucx), std::move(pair.first));
      other = std::make_unique<channel::UcxStream>(worker_of(*carrier.ucx), std::move(pair.second));
    } else {
      first = tcp_stream(std::move(pair.first));
      second = tcp_stream(std::move(pair.second));
      return;
    }
    EXPECT_OK(one->begin({}, 0, 1));
    EXPECT_OK(other->begin(secret, 1, 0));
    for (bool connected = false, also = false; !connected || !also; std::this_thread::yield()) {
      for (auto [stream, done] : {std::pair(one.get(), &connected), std::pair(other.get(), &also)})
        if (!*done && failure == NCAST_OK) failure = stream->connect(done);
      if (failure != NCAST_OK) break;
    }
    first = std::move(one);
    second = std::move(other);
  }
};

}  // namespace narrowcast::testing
