#include "channel/network/link.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "bootstrap/background_thread.h"
#include "bootstrap/shared_memory.h"

namespace narrowcast::channel {
namespace {

// The kinds of messages, each after a MessageHeader.
enum Kind : uint32_t {
  slot = 1,         // a Tag and a payload
  freed = 2,        // value: the number of slots
  current = 3,      // a Tag
  collective = 4,   // a Tag
  in_call = 5,      // value: 0 or 1
  failure = 6,      // a Failure
  goodbye = 7,      // the sender has sent all its slots
  goodbye_seen = 8  // answers it
};

// The first failure that the sender knows, of any rank: so ranks that leave because of it have told everybody.
struct Failure {
  uint32_t status;
  int32_t rank;
  char message[sizeof FailureRecord::message];
};

constexpr std::chrono::milliseconds longest_sleep{50};
constexpr std::chrono::seconds goodbye_limit{1};

}  // namespace

// The slots that this rank fills. The sending thread reads them, and the receiving thread frees them.
class Link::Outgoing : public RingEnd {
 public:
  using RingEnd::RingEnd;

  uint64_t filled() const { return state_->filled.poll(); }
  uint64_t sent() const { return sent_.load(std::memory_order_acquire); }
  Slot next() const { return slot(sent()); }
  void sent_one() { sent_.fetch_add(1, std::memory_order_release); }
  // False if the peer cannot have so many.
  bool free(uint64_t slots) {
    if (slots > sent() - position_) return false;
    for (; slots != 0; --slots, ++position_) state_->freed.signal(*peer_bell_);
    return true;
  }

 private:
  std::atomic<uint64_t> sent_{0};
};

// The slots that the peer fills. The receiving thread stores them, and this rank frees them.
class Link::Incoming : public RingSender {
 public:
  using RingSender::RingSender;

  // The slots that this rank has freed since the last call. Called by the sending thread.
  uint64_t take_freed() {
    const uint64_t before = announced_;
    announced_ = state_->freed.poll();
    return announced_ - before;
  }

 private:
  uint64_t announced_ = 0;
};

Link::Link(int rank, int peer, std::unique_ptr<Stream> stream, const Memory& memory)
    : rank_(rank),
      peer_(peer),
      stream_(std::move(stream)),
      own_(memory.own),
      of_peer_(memory.of_peer),
      outgoing_(std::make_unique<Outgoing>(memory.outgoing, memory.shape, &memory.own.member[rank].bell)),
      incoming_(std::make_unique<Incoming>(memory.incoming, memory.shape, &memory.own.member[rank].bell)) {}

ncast_status Link::start() {
  if (ncast_status status = bootstrap::start_background_thread("ncast-receive", [this] { receive(); }, &receiver_))
    return status;
  return bootstrap::start_background_thread("ncast-send", [this] { send(); }, &sender_);
}

void Link::leave() {
  leaving_.store(true, std::memory_order_release);
  bell_.notify();
}

Link::~Link() {
  leave();
  {
    std::unique_lock lock(mutex_);
    if (sender_.joinable()) changed_.wait_for(lock, goodbye_limit, [this] { return confirmed_ || ended_; });
  }
  stream_->shut_down();  // ends both threads
  if (receiver_.joinable()) receiver_.join();
  bell_.notify();
  if (sender_.joinable()) sender_.join();
}

bool Link::has_ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

ncast_status Link::fail_of_end(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return fail_of_connection(name, error_, stream_->describe(error_));
}

void Link::end(int error) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) error_ = error;
    ended_ = true;
    changed_.notify_all();
  }
  stream_->shut_down();
  own_.member[rank_].bell.notify();
  bell_.notify();
}

// --- sending --------------------------------------------------------------------------------------------------------

void Link::send() {
  bool said_goodbye = false, confirmed_peer = false;
  while (!has_ended()) {
    const uint32_t seen = bell_.epoch();
    const bool leaving = leaving_.load(std::memory_order_acquire);
    // What was published before a slot was filled is sent before it.
    const uint64_t filled = outgoing_->filled();
    if (!send_published()) return;
    while (outgoing_->sent() != filled) {
      const Slot next = outgoing_->next();
      outgoing_->sent_one();  // before the peer can free it
      const SlotHeader& header = *next.header;
      if (!send_message(slot, 0, &header.tag, sizeof header.tag, next.payload, header.payload_bytes)) return;
    }
    if (const uint64_t slots = incoming_->take_freed(); slots != 0 && !send_message(freed, static_cast<int32_t>(slots)))
      return;
    if (leaving && !said_goodbye && outgoing_->filled() == filled) {
      if (!send_message(goodbye, 0)) return;
      said_goodbye = true;
    }
    if (!confirmed_peer && peer_has_left_.load(std::memory_order_acquire)) {
      if (!send_message(goodbye_seen, 0)) return;
      confirmed_peer = true;
    }
    bell_.wait(seen, longest_sleep);
  }
}

bool Link::send_published() {
  const Member& member = own_.member[rank_];
  if (!send_tag(current, member.current, &sent_current_)) return false;
  if (!send_tag(collective, member.collective, &sent_collective_)) return false;
  if (const uint32_t now = member.in_call.load(std::memory_order_seq_cst); now != sent_in_call_) {
    if (!send_message(in_call, static_cast<int32_t>(now))) return false;
    sent_in_call_ = now;
  }
  const FailureRecord& record = own_.failure;
  if (sent_failure_ || record.state.load(std::memory_order_acquire) != FailureRecord::published) return true;
  sent_failure_ = true;
  Failure content{record.status, record.rank, {}};
  std::memcpy(content.message, record.message, sizeof content.message);
  return send_message(failure, 0, &content, sizeof content);
}

bool Link::send_tag(uint32_t kind, const PublishedTag& tag, uint64_t* sent_version) {
  for (uint64_t version; (version = tag.version()) != *sent_version;) {
    Tag content;
    if (!tag.load(&content)) continue;  // this rank is storing one
    if (!send_message(kind, 0, &content, sizeof content)) return false;
    *sent_version = version;
  }
  return true;
}

bool Link::send_message(uint32_t kind, int32_t value, const void* content, size_t bytes, const void* payload,
                        size_t payload_bytes) {
  bootstrap::MessageHeader header{static_cast<bootstrap::MessageKind>(kind), value, bytes + payload_bytes};
  iovec parts[] = {
      {&header, sizeof header}, {const_cast<void*>(content), bytes}, {const_cast<void*>(payload), payload_bytes}};
  const int error = stream_->send(parts);
  if (error != 0) end(error);
  return error == 0;
}

// --- receiving ------------------------------------------------------------------------------------------------------

void Link::receive() {
  bootstrap::MessageHeader header;
  while (read(&header, sizeof header)) {
    if (handle(header)) continue;
    end(EBADMSG);
    return;
  }
}

bool Link::read(void* to, size_t bytes) {
  const int error = stream_->receive_all(to, bytes);
  if (error != 0) end(error == Stream::closed ? 0 : error);
  return error == 0;
}

// False if the message is not valid; what cannot be read has ended the link already.
bool Link::handle(const bootstrap::MessageHeader& header) {
  Member& member = of_peer_.member[peer_];
  const uint64_t bytes = header.payload_bytes;
  const auto store_tag = [&](PublishedTag& to) {
    Tag tag;
    if (bytes != sizeof tag || !read(&tag, sizeof tag)) return false;
    to.store(tag);
    own_.member[rank_].bell.notify();
    return true;
  };
  switch (static_cast<uint32_t>(header.kind)) {
    case slot: return store_slot(bytes);
    case freed: return bytes == 0 && header.value > 0 && outgoing_->free(static_cast<uint64_t>(header.value));
    case current: return store_tag(member.current);
    case collective: return store_tag(member.collective);
    case in_call: member.in_call.store(header.value != 0 ? 1 : 0, std::memory_order_seq_cst); return bytes == 0;
    case failure: return store_failure(bytes);
    case goodbye:
      of_peer_.owners.owner[peer_].state.store(bootstrap::SegmentOwners::left, std::memory_order_seq_cst);
      peer_has_left_.store(true, std::memory_order_release);
      own_.member[rank_].bell.notify();
      bell_.notify();
      return bytes == 0;
    case goodbye_seen: {
      const std::lock_guard lock(mutex_);
      confirmed_ = true;
      changed_.notify_all();
      return bytes == 0;
    }
    default: return false;
  }
}

bool Link::store_slot(uint64_t bytes) {
  const Slot next = incoming_->next_free();
  const uint64_t payload_bytes = bytes - sizeof(Tag);
  if (!next || bytes < sizeof(Tag) || payload_bytes > incoming_->payload_capacity_bytes()) return false;
  if (!read(&next.header->tag, sizeof(Tag)) || !read(next.payload, payload_bytes)) return false;
  next.header->payload_bytes = payload_bytes;
  incoming_->put();
  return true;
}

bool Link::store_failure(uint64_t bytes) {
  Failure content;
  if (bytes != sizeof content || !read(&content, sizeof content)) return false;
  if (content.status == NCAST_OK || content.status > NCAST_INTERNAL || content.rank < 0 || content.rank >= max_ranks)
    return false;
  content.message[sizeof content.message - 1] = 0;
  FailureRecord& record = own_.failure;
  uint32_t expected = FailureRecord::none;
  if (!record.state.compare_exchange_strong(expected, FailureRecord::writing)) return true;
  record.status = content.status;
  record.rank = content.rank;
  std::memcpy(record.message, content.message, sizeof content.message);
  record.state.store(FailureRecord::published, std::memory_order_release);
  for (Member& member : own_.member) member.bell.notify();  // all ranks of this host
  return true;
}

}  // namespace narrowcast::channel
