// Stores what a peer on another host forwards in the scratch of this rank.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "channel/network/forwarded.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

// Used by one thread.
class ForwardingReceiver {
 public:
  // scratch: the part of this rank's scratch that the peer writes. sent: the counts of the sending thread; all earlier
  // payloads have been released.
  ForwardingReceiver(Stream& stream, const WrittenPart& scratch, std::span<const SentCounts> sent);

  // Receives until the peer says goodbye or the connection ends. Returns why it has ended: an errno, EBADMSG if what
  // came was not valid, 0 if the peer closed it or has said goodbye. Stores payloads only where the peer may.
  int run();
  bool has_goodbye() const { return has_goodbye_; }

 private:
  // Where a payload ends in the payloads of the batch, and the flag that says that it has arrived.
  struct Arrival {
    uint64_t end_bytes;
    uint32_t ring, use;
    SlotFlag flag;
  };

  size_t buffered() const { return end_ - begin_; }
  int fill(size_t bytes);
  int receive_batch();
  bool take(const ForwardedItem& item);
  bool take_payload(uint32_t ring, SlotFlag flag);
  int receive_payloads();
  void store_buffered();
  void raise_flags();

  Stream& stream_;
  const WrittenPart scratch_;
  // The counts of a ring, and those of the sending thread when they were loaded last: its cache lines are busy.
  struct Ring {
    uint32_t received, credit, sent, granted;
  };

  const std::span<const SentCounts> sent_;
  std::vector<Ring> rings_;
  bool says_goodbye_ = false;  // in the current batch
  bool has_goodbye_ = false;

  // Bytes that have arrived: headers, items, and what came with them.
  static constexpr size_t most_batch_bytes = sizeof(BatchHeader) + most_items * sizeof(ForwardedItem);
  std::array<char, 2 * most_batch_bytes> buffer_;
  size_t begin_ = 0, end_ = 0;

  // Of the current batch.
  std::array<Arrival, most_items> arrivals_;
  std::array<iovec, most_items + 1> parts_;  // slots, then the buffer
  size_t arrivals_used_ = 0, parts_used_ = 0;
  size_t raised_ = 0;            // arrivals whose flag is raised
  std::span<iovec> missing_;     // the part of the slots that has not arrived
  uint64_t stored_bytes_ = 0;    // that have
  uint64_t payloads_bytes_ = 0;  // of all payloads
};

}  // namespace narrowcast::channel
