// two_level: values cross between hosts once, between ranks with the same index on their hosts, and are distributed,
// collected or combined within the hosts. On a host with fewer ranks, a rank stands for several indices: rank
// index % ranks of the host.
//
// The ranks of a host combine their values in rank order, and the sums of the hosts are combined in the order of the
// hosts.
#include <algorithm>

#include "plan/builders/writer.h"
#include "status/error.h"

namespace narrowcast::plan::builders {
namespace {

class Hosts {
 public:
  explicit Hosts(const std::vector<int>& host_of) : host_of_(host_of) {
    for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
      const auto host = static_cast<size_t>(host_of_[static_cast<size_t>(rank)]);
      if (host == members_.size()) members_.emplace_back();
      index_.push_back(static_cast<int>(members_[host].size()));
      members_[host].push_back(rank);
    }
  }

  int count() const { return static_cast<int>(members_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  int index_of(int rank) const { return index_[static_cast<size_t>(rank)]; }
  const std::vector<int>& members(int host) const { return members_[static_cast<size_t>(host)]; }
  // The rank that stands for `rank` on a host; itself on its own.
  int at(int host, int rank) const {
    const std::vector<int>& all = members(host);
    return all[static_cast<size_t>(index_of(rank)) % all.size()];
  }
  // The other hosts, beginning with the next one.
  std::vector<int> others(int host) const {
    std::vector<int> list;
    for (int i = 1; i < count(); ++i) list.push_back((host + i) % count());
    return list;
  }
  // The other ranks of the host, beginning with the next one.
  std::vector<int> neighbours(int rank) const {
    std::vector<int> list = members(host_of(rank));
    std::ranges::rotate(list, list.begin() + index_of(rank));
    list.erase(list.begin());
    return list;
  }
  // The ranks that stand for `rank` on the other hosts.
  std::vector<int> twins(int rank) const {
    std::vector<int> list;
    for (const int host : others(host_of(rank))) list.push_back(at(host, rank));
    return list;
  }
  // The ranks of other hosts for which `rank` stands on its own.
  std::vector<int> served(int rank) const {
    std::vector<int> list;
    for (const int host : others(host_of(rank)))
      std::ranges::copy_if(members(host), std::back_inserter(list),
                           [&](int other) { return at(host_of(rank), other) == rank; });
    return list;
  }

 private:
  std::vector<int> host_of_, index_;
  std::vector<std::vector<int>> members_;
};

class TwoLevel {
 public:
  TwoLevel(Writer* writer, const Hosts& hosts, const Request& request, int rank)
      : writer_(writer),
        hosts_(hosts),
        request_(request),
        rank_(rank),
        host_(hosts.host_of(rank)),
        neighbours_(hosts.neighbours(rank)),
        twins_(hosts.twins(rank)),
        served_(hosts.served(rank)) {}

  void all_gather() {
    writer_->group(rank_);
    send_own(output(chunk(rank_)));
    forward_served();
    // A neighbour sends its own piece, then those that it forwards.
    for (const int neighbour : neighbours_) {
      writer_->group(rank_);
      writer_->copy(rank_, within(neighbour, rank_), {output(chunk(neighbour))});
      for (const int owner : hosts_.served(neighbour)) writer_->copy(rank_, from(neighbour), {output(chunk(owner))});
    }
  }

  void reduce_scatter() {
    for (const int neighbour : neighbours_) {
      writer_->group(rank_);
      for (const int owner : reduced_by(neighbour))
        writer_->copy(rank_, input(chunk(owner)), {within(rank_, neighbour)});
    }
    writer_->group(rank_);
    for (const int owner : served_) send_sum(chunk(owner), owner);
    reduce_own(input(chunk(rank_)), {output(0)});
  }

  // A reduce-scatter and an all-gather, in one group, because both use the same rings. Chunk by chunk, so that rings
  // need not be deep.
  void all_reduce() {
    writer_->group(rank_);
    const std::vector<int> own = reduced_by(rank_);
    const std::vector<Operand> results = [&] {
      use_result_codec();
      return with(writer_->as_received(output(chunk(rank_))), messages_of_own());
    }();
    writer_->use_codec(request_.codec);
    for (size_t i = 0; i < most_of_host([&](int rank) { return reduced_by(rank).size(); }); ++i) {
      for (const int neighbour : neighbours_) {
        const std::vector<int> theirs = reduced_by(neighbour);
        if (i < theirs.size()) writer_->copy(rank_, input(chunk(theirs[i])), {within(rank_, neighbour)});
      }
      if (i < own.size() && own[i] != rank_) send_sum(chunk(own[i]), own[i]);
    }
    reduce_own(input(chunk(rank_)), results);
    use_result_codec();
    for (const int neighbour : neighbours_) writer_->copy(rank_, within(neighbour, rank_), {output(chunk(neighbour))});
    for (size_t i = 0; i < most_of_host([&](int rank) { return hosts_.served(rank).size(); }); ++i) {
      if (i < served_.size())
        writer_->copy(rank_, from(served_[i]), with(output(chunk(served_[i])), messages(neighbours_)));
      for (const int neighbour : neighbours_) {
        const std::vector<int> theirs = hosts_.served(neighbour);
        if (i < theirs.size()) writer_->copy(rank_, from(neighbour), {output(chunk(theirs[i]))});
      }
    }
  }

  // The root sends to the ranks that stand for it and to its neighbours; the former send to theirs.
  void broadcast(int root) {
    writer_->group(rank_);
    if (rank_ == root) return send_own(output(0));
    const int sender = hosts_.at(host_, root);
    if (rank_ == sender)
      writer_->copy(rank_, from(root), with(output(0), messages(neighbours_)));
    else
      writer_->copy(rank_, sender == root ? within(root, rank_) : from(sender), {output(0)});
  }

  // The ranks that stand for the root combine the values of their hosts.
  void reduce(int root) {
    writer_->group(rank_);
    const int receiver = hosts_.at(host_, root);
    if (rank_ != receiver)
      writer_->copy(rank_, input(0), {within(rank_, receiver)});
    else if (rank_ != root)
      send_sum(0, root);
    else
      reduce_own(input(0), {output(0)});
  }

  // The ranks that stand for the root forward the pieces of their hosts.
  void gather(int root) {
    writer_->group(rank_);
    const int receiver = hosts_.at(host_, root);
    if (rank_ == root) {
      writer_->copy(rank_, input(0), {output(chunk(rank_))});
      for (const int neighbour : neighbours_) {
        writer_->group(rank_);
        writer_->copy(rank_, within(neighbour, rank_), {output(chunk(neighbour))});
      }
      for (const int twin : twins_) {
        writer_->group(rank_);
        writer_->copy(rank_, from(twin), {output(chunk(twin))});
        for (const int owner : hosts_.neighbours(twin)) writer_->copy(rank_, from(twin), {output(chunk(owner))});
      }
    } else if (rank_ != receiver) {
      writer_->copy(rank_, input(0), {receiver == root ? within(rank_, root) : to(receiver)});
    } else {
      writer_->copy(rank_, input(0), {to(root)});
      for (const int neighbour : neighbours_) writer_->copy(rank_, from(neighbour), {to(root)});
    }
  }

  // The reverse of a gather.
  void scatter(int root) {
    writer_->group(rank_);
    const int sender = hosts_.at(host_, root);
    if (rank_ == root) {
      writer_->copy(rank_, input(chunk(rank_)), {output(0)});
      for (const int twin : twins_) {
        writer_->group(rank_);
        writer_->copy(rank_, input(chunk(twin)), {to(twin)});
        for (const int owner : hosts_.neighbours(twin)) writer_->copy(rank_, input(chunk(owner)), {to(twin)});
      }
      for (const int neighbour : neighbours_) {
        writer_->group(rank_);
        writer_->copy(rank_, input(chunk(neighbour)), {within(rank_, neighbour)});
      }
    } else if (rank_ != sender) {
      writer_->copy(rank_, sender == root ? within(root, rank_) : from(sender), {output(0)});
    } else {
      writer_->copy(rank_, from(root), {output(0)});
      for (const int neighbour : neighbours_) writer_->copy(rank_, from(root), {to(neighbour)});
    }
  }

  // A rank collects the pieces of its host for each rank that it stands for, and sends them on.
  void all_to_all() {
    for (const int neighbour : neighbours_) {
      writer_->group(rank_);
      for (const int owner : hosts_.served(neighbour)) writer_->copy(rank_, input(chunk(owner)), {to(neighbour)});
      writer_->copy(rank_, input(chunk(neighbour)), {within(rank_, neighbour)});
    }
    writer_->group(rank_);
    for (const int owner : served_)
      for (const int member : hosts_.members(host_))
        writer_->copy(rank_, member == rank_ ? input(chunk(owner)) : from(member), {to(owner)});
    writer_->copy(rank_, input(chunk(rank_)), {output(chunk(rank_))});
    for (const int neighbour : neighbours_) writer_->copy(rank_, within(neighbour, rank_), {output(chunk(neighbour))});
    for (const int twin : twins_) {
      writer_->group(rank_);
      for (const int member : hosts_.members(hosts_.host_of(twin)))
        writer_->copy(rank_, from(twin), {output(chunk(member))});
    }
  }

 private:
  static uint32_t chunk(int rank) { return static_cast<uint32_t>(rank); }
  Operand to(int peer) { return writer_->message(rank_, peer); }
  Operand from(int peer) { return writer_->message(peer, rank_); }
  std::vector<Operand> messages(const std::vector<int>& peers) { return writer_->messages(rank_, peers); }
  bool differs_within() const { return writer_->is_exact() && request_.codec_within.has_value(); }
  // A message between two ranks of the host whose values have not crossed between hosts, and will not.
  Operand within(int sender, int receiver) {
    Operand message = writer_->message(sender, receiver);
    if (differs_within()) message.codec = request_.codec_within.value_or(message.codec);
    return message;
  }
  void use_result_codec() { writer_->use_codec(request_.result_codec.value_or(request_.codec)); }

  // Messages with this rank's values to its twins and neighbours.
  std::vector<Operand> messages_of_own() {
    std::vector<Operand> list = messages(twins_);
    for (const int neighbour : neighbours_) list.push_back(within(rank_, neighbour));
    return list;
  }
  // Sends this rank's input, in the first group of the rank. Another one sends to the neighbours, so that they do not
  // wait for what comes from other hosts.
  void send_own(const Operand& result) {
    if (!differs_within() || twins_.empty() || neighbours_.empty()) {
      writer_->copy(rank_, input(0), with(writer_->as_received(result), messages_of_own()));
      return;
    }
    writer_->copy(rank_, input(0), with(result, messages(twins_)));
    writer_->group(rank_);
    Step step;
    step.from = {input(0)};
    for (const int neighbour : neighbours_) step.to.push_back(within(rank_, neighbour));
    step.after = {{0, 0}};  // in place, the result is the input
    writer_->step(rank_, std::move(step));
  }
  // Received payloads go to the neighbours as they are.
  void forward_served() {
    if (neighbours_.empty()) {
      for (const int owner : served_) {
        writer_->group(rank_);
        writer_->copy(rank_, from(owner), {output(chunk(owner))});
      }
      return;
    }
    for (const int owner : served_)
      writer_->copy(rank_, from(owner), with(output(chunk(owner)), messages(neighbours_)));
  }

  // The owners of the chunks that a rank reduces for its host: those for which it stands, then itself.
  std::vector<int> reduced_by(int rank) const {
    std::vector<int> list = hosts_.served(rank);
    list.push_back(rank);
    return list;
  }
  template <typename Count>
  size_t most_of_host(Count count) const {
    size_t most = 0;
    for (const int member : hosts_.members(host_)) most = std::max(most, count(member));
    return most;
  }
  // The values of the ranks of this host, in rank order.
  std::vector<Operand> of_host(const Operand& own) {
    std::vector<Operand> list;
    for (const int member : hosts_.members(host_)) list.push_back(member == rank_ ? own : within(member, rank_));
    return list;
  }
  // What a host contributes: values if it has one rank, otherwise their sum.
  Operand sum_of(int host, Operand operand) const {
    operand.partial = request_.partial_sums && hosts_.members(host).size() > 1;
    return operand;
  }
  void send_sum(uint32_t chunk, int owner) {
    writer_->reduce(rank_, of_host(input(chunk)), {sum_of(host_, to(owner))});
  }
  // Combines the sums of the hosts, in their order.
  void reduce_own(const Operand& own, const std::vector<Operand>& results) {
    if (twins_.empty()) return writer_->reduce(rank_, of_host(own), results);
    Operand sum = own;
    if (!neighbours_.empty()) {
      writer_->set_scratch(rank_, 1);
      sum = sum_of(host_, scratch(0));
      writer_->reduce(rank_, of_host(own), {sum});
    }
    std::vector<Operand> list;
    list.reserve(static_cast<size_t>(hosts_.count()));
    for (int host = 0; host < hosts_.count(); ++host)
      list.push_back(host == host_ ? sum : sum_of(host, from(hosts_.at(host, rank_))));
    writer_->reduce(rank_, list, results);
  }

  Writer* writer_;
  const Hosts& hosts_;
  const Request& request_;
  const int rank_, host_;
  const std::vector<int> neighbours_, twins_, served_;
};

ncast_status find_hosts(const Request& request, std::vector<int>* hosts) {
  const int places = request.ranks_per_node;
  if (request.hosts.empty()) {
    if (places < 1 || request.ranks % places != 0)
      return fail(NCAST_INVALID_ARGUMENT, "two_level: ranks_per_node is %d, which does not divide %d ranks", places,
                  request.ranks);
    for (int rank = 0; rank < request.ranks; ++rank) hosts->push_back(rank / places);
    return NCAST_OK;
  }
  if (request.hosts.size() != static_cast<size_t>(request.ranks))
    return fail(NCAST_INVALID_ARGUMENT, "two_level: there are %zu hosts for %d ranks", request.hosts.size(),
                request.ranks);
  int next = 0;
  for (const int host : request.hosts) {
    if (host < 0 || host > next)
      return fail(NCAST_INVALID_ARGUMENT, "two_level: host %d precedes host %d; they are not numbered in order", host,
                  next);
    next = std::max(next, host + 1);
  }
  *hosts = request.hosts;
  return NCAST_OK;
}

}  // namespace

ncast_status two_level(const Request& request, Plan* plan) {
  std::vector<int> host_of;
  if (ncast_status status = find_hosts(request, &host_of)) return status;
  const Hosts hosts(host_of);
  const uint32_t chunks = request.operation == Operation::all_reduce ? static_cast<uint32_t>(request.ranks) : 1;
  Writer writer(request, "two_level", chunks, plan);
  for (int rank = 0; rank < request.ranks; ++rank) {
    writer.use_codec(request.codec);
    TwoLevel level(&writer, hosts, request, rank);
    switch (request.operation) {
      case Operation::all_gather: level.all_gather(); break;
      case Operation::reduce_scatter: level.reduce_scatter(); break;
      case Operation::broadcast: level.broadcast(request.root); break;
      case Operation::reduce: level.reduce(request.root); break;
      case Operation::gather: level.gather(request.root); break;
      case Operation::scatter: level.scatter(request.root); break;
      case Operation::all_to_all: level.all_to_all(); break;
      default: level.all_reduce(); break;
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders
