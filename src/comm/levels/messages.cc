// Messages: between ranks of a level by its communicator, and between all others by one of the two ranks. The messages
// of a group run beside each other, because their ranks may make them in any order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/concurrent.h"
#include "comm/launch.h"
#include "comm/levels/communicator.h"
#include "executor/launch_apart.h"
#include "status/error.h"

namespace narrowcast::comm {

using namespace executor;

namespace {

// Ranks connect to so many others at once. All visit their peers in the same order, that of the lower and the higher
// rank of each pair: so the first pair that is not connected waits for no other.
constexpr int most_connecting = 32;

// Of communicators of one level.
ncast_status launch_group(const std::vector<Call>& calls) {
  if (ncast_status status = start_group()) return status;
  for (const Call& call : calls) static_cast<void>(submit(call));  // an error is that of the group
  return end_group("ncast_group_end", true);
}

ncast_status wait(LocalWork& work, ncast_stream stream, ncast_stream other) {
  if (stream == other) return NCAST_OK;
  if (ncast_status status = work.set_mark(0, other)) return status;
  return work.wait_for_mark(0, stream);
}

// On GPUs the kernels of several communicators run beside each other, except that if there are too many, some wait for
// those of communicators that come earlier.
ncast_status launch_beside(const std::vector<ncast_comm*>& comms, std::vector<Call> calls, LocalWork& work) {
  const ncast_stream stream = calls[0].stream;
  std::set<ncast_stream> streams;
  for (const Call& call : calls) streams.insert(call.stream);
  const int sides = std::min(static_cast<int>(comms.size()), LocalWork::side_streams);
  for (const ncast_stream other : streams)
    if (ncast_status status = wait(work, stream, other)) return status;
  for (int side = 0; side < sides; ++side)
    if (ncast_status status = wait(work, work.side_stream(side), stream)) return status;
  for (Call& call : calls) {
    const auto number = static_cast<int>(std::ranges::find(comms, call.comm) - comms.begin());
    call.stream = work.side_stream(number % sides);
  }
  ncast_status status = launch_group(calls);
  std::string message = status == NCAST_OK ? "" : ncast_last_error();
  // Also after an error: otherwise a capture could not end.
  const auto join = [&](ncast_stream waiting, ncast_stream other) {
    const ncast_status joined = wait(work, waiting, other);
    if (status != NCAST_OK || joined == NCAST_OK) return;
    status = joined;
    message = ncast_last_error();
  };
  for (int side = 0; side < sides; ++side) join(stream, work.side_stream(side));
  for (const ncast_stream other : streams) join(other, stream);
  return status == NCAST_OK ? NCAST_OK : fail(status, "%s", message.c_str());
}

}  // namespace

Levels::Place Levels::level_of(int peer) const {
  if (group_of(peer) == shape_.group) return {within(), index_of(peer)};
  if (index_of(peer) != shape_.index) return {};
  const Levels* const next = levels_between();
  return next == nullptr ? Place{between(), group_of(peer)} : next->level_of(group_of(peer));
}

Levels::Place Levels::place_of(int peer) const {
  const Place level = level_of(peer);
  return level.comm != nullptr ? level : Place{pairs_.find(peer), pairs_.rank_of(peer)};
}

// Pairs with nothing to exchange are not connected.
std::vector<Call> Levels::messages_of(const Call& all_to_all_v) {
  std::vector<Call> messages;
  const size_t bytes = ncast_dtype_bytes(all_to_all_v.dtype);
  for (int peer = 0; peer < all_to_all_v.comm->ranks(); ++peer) {
    const PeerCounts::Range sent = all_to_all_v.peer_counts->send[static_cast<size_t>(peer)];
    const PeerCounts::Range received = all_to_all_v.peer_counts->recv[static_cast<size_t>(peer)];
    Call message = all_to_all_v;
    message.peer_counts = nullptr;
    message.peer = peer;
    if (sent.elems != 0) {
      message.operation = Operation::send;
      message.send = static_cast<const std::byte*>(all_to_all_v.send) + sent.first * bytes;
      message.recv = nullptr;
      message.count = sent.elems;
      messages.push_back(message);
    }
    if (received.elems != 0) {
      message.operation = Operation::recv;
      message.send = nullptr;
      message.recv = static_cast<std::byte*>(all_to_all_v.recv) + received.first * bytes;
      message.count = received.elems;
      messages.push_back(message);
    }
  }
  return messages;
}

// Others may wait for what has failed.
ncast_status Levels::attempt(const std::function<ncast_status()>& action) {
  const ncast_status status = guarded("ncast_group_end", action);
  if (status != NCAST_OK) set_error(status, ncast_last_error());
  return status;
}

// Calls on the host run before a launch returns. There, the messages of ranks that connect run in the threads in which
// they do: otherwise a peer that has to send or receive before it connects to the next rank would wait for itself.
bool Levels::connects_in_calls() const { return backend() == NCAST_BACKEND_HOST; }

// All at once, because one thread may make the calls of several ranks.
ncast_status Levels::connect(std::span<const Call> calls) {
  // By the lower and the higher rank, the own one, and the number of the communicator.
  std::map<std::tuple<int, int, int, uint64_t>, std::pair<Levels*, int>> connecting;
  const auto add = [&](const Call& call) {
    auto* const comm = static_cast<Levels*>(call.comm);
    if (comm->connects_in_calls()) return;
    const int rank = comm->rank(), peer = call.peer;
    if (comm->place_of(peer).comm == nullptr)
      connecting[{std::min(rank, peer), std::max(rank, peer), rank, comm->number()}] = {comm, peer};
  };
  for (const Call& call : calls) {
    if (call.operation == Operation::all_to_all_v)
      std::ranges::for_each(messages_of(call), add);
    else if (operation::is_point_to_point(call.operation))
      add(call);
  }
  const auto ordered = std::views::values(connecting);
  const std::vector all(ordered.begin(), ordered.end());
  return run_concurrently(static_cast<int>(all.size()), most_connecting, [&](int number) {
    const auto [comm, peer] = all[static_cast<size_t>(number)];
    return comm->attempt([comm, peer] { return comm->pairs_.connect(peer, comm->config()); });
  });
}

ncast_status Levels::send_and_receive(std::span<const Call> calls) {
  if (calls.empty()) return NCAST_OK;
  if (!connects_in_calls()) return launch_messages(calls);
  std::vector<Call> connected;
  std::map<int, std::vector<Call>> connecting;  // by peer
  for (const Call& call : calls)
    (place_of(call.peer).comm != nullptr ? connected : connecting[call.peer]).push_back(call);
  std::vector<std::function<ncast_status()>> actions;
  if (!connected.empty()) actions.emplace_back([&] { return launch_messages(connected); });
  for (const auto& [peer, messages] : connecting) {
    actions.emplace_back([this, peer, &messages] {
      const ncast_status status = pairs_.connect(peer, config());
      return status != NCAST_OK ? status : launch_messages(messages);
    });
  }
  return run_concurrently(static_cast<int>(actions.size()), most_connecting,
                          [&](int number) { return attempt(actions[static_cast<size_t>(number)]); });
}

// All ranks have been connected.
ncast_status Levels::launch_messages(std::span<const Call> given) {
  // In the same order on all ranks: that of the levels, and then of the pairs, as above. Those to a peer in their own.
  std::multimap<int, Call> by_peer;
  for (const Call& call : given) by_peer.emplace(level_of(call.peer).comm != nullptr ? -1 : call.peer, call);
  const auto ordered = std::views::values(by_peer);
  std::vector<Call> calls(ordered.begin(), ordered.end());
  for (Call& call : calls) {
    const Place place = place_of(call.peer);
    call.comm = place.comm;
    call.peer = place.rank;
  }
  const std::vector<ncast_comm*> comms = communicators_of(calls);
  const ncast_status status = comms.size() == 1 ? launch_group(calls) : launch_beside(comms, std::move(calls), *work_);
  if (status == NCAST_OK) return NCAST_OK;
  const std::string message = ncast_last_error();
  const std::string ranks = comms.size() == 1 ? ranks_of(comms[0]) : "with numbers of ranks in a group or pair: ";
  return fail(status, "%s%s", ranks.c_str(), message.c_str());
}

}  // namespace narrowcast::comm
