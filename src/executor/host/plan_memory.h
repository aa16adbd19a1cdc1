// The memory of a prepared plan: its rings, semaphores and packet flags, and the buffers that other ranks access. All
// ranks compute the same layout.
//
// Shared buffers, and scratch, hold one micro-batch: the part of every chunk, at a fixed stride.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

#include "executor/host/communicator.h"
#include "executor/host/plan_facts.h"

namespace narrowcast::executor::host {

// Private buffers of a group for one message each. NULL if the group does not need one.
struct GroupBuffers {
  std::byte* frame = nullptr;        // holds any encoded part of a chunk
  std::byte* values = nullptr;       // holds the values of a part
  std::byte* rounded = nullptr;      // the same, as a codec delivers them
  std::byte* accumulator = nullptr;  // part_bytes of accumulators
  std::byte* inner = nullptr;        // the same, for a reduction within a reduction
};

// Encoded packets, in scratch: frames at a fixed stride, each after this header.
struct PacketHeader {
  uint64_t elems;  // of the frame
  uint64_t frame_bytes;
};

class PlanMemory {
 public:
  // For a plan of the library's own: it uses the rings and the staging buffers of the communicator.
  static ncast_status borrow(Communicator& comm, const plan::Plan& plan, PlanMemory* memory);
  // The same, with buffers of its own: for plans of several groups that need them, or with scratch.
  static ncast_status borrow_rings(Communicator& comm, const plan::Plan& plan, const PlanFacts& facts,
                                   PlanMemory* memory);
  // Whether any plan can borrow_rings(), or borrow(). The same on all ranks. depth: the messages that its rings must
  // hold.
  static bool can_borrow_rings(const Communicator& comm, const plan::Plan& plan, const PlanFacts& facts,
                               uint32_t depth);
  static bool can_borrow(const Communicator& comm, const plan::Plan& plan, const PlanFacts& facts, uint32_t depth);
  // For other plans. All ranks call this at the same position. Errors: INVALID_ARGUMENT if the plan
  // needs more than scratch_bytes; SYSTEM_ERROR.
  static ncast_status allocate(Communicator& comm, const plan::Plan& plan, const PlanFacts& facts, PlanMemory* memory);

  // The maximum of raw values in a part of a chunk.
  size_t part_bytes() const { return part_bytes_; }
  size_t frame_bytes() const { return frame_bytes_; }
  channel::RingSender& sender(uint32_t channel) { return *senders_[channel]; }
  channel::RingReceiver& receiver(uint32_t channel) { return *receivers_[channel]; }
  channel::Semaphore& semaphore(uint32_t channel) { return semaphores_[channel].semaphore; }
  const GroupBuffers& buffers_of(size_t group) const { return groups_[group]; }

  // The start of a chunk's part. copy: which of the plan's scratch copies.
  std::byte* part(int rank, plan::Buffer buffer, uint32_t chunk, uint32_t copy) const {
    return exposed_[index(rank, buffer)].parts + (copy * scratch_chunks(rank, buffer) + chunk) * part_bytes_;
  }
  std::atomic<uint64_t>& flag(int rank, plan::Buffer buffer, uint32_t chunk, uint32_t copy) const {
    return exposed_[index(rank, buffer)].flags[copy * scratch_chunks(rank, buffer) + chunk];
  }

  // A frame of the encoded packets of a chunk of scratch, if the plan has such packets. number: in the chunk's part.
  PacketHeader* packets(int rank, uint32_t chunk, uint32_t copy, uint64_t number) const {
    const size_t place = copy * scratch_chunks(rank, plan::Buffer::scratch) + chunk;
    return reinterpret_cast<PacketHeader*>(exposed_[index(rank, plan::Buffer::scratch)].packets +
                                           (place * packet_frames_.count + number) * packet_frames_.stride());
  }
  // The bytes that a frame of packets can have.
  size_t packet_capacity_bytes() const { return packet_frames_.capacity_bytes; }

 private:
  struct alignas(channel::cache_line_bytes) PaddedSemaphore {
    channel::Semaphore semaphore;
  };
  struct Exposed {
    std::byte* parts = nullptr;
    std::atomic<uint64_t>* flags = nullptr;
    std::byte* packets = nullptr;  // encoded
  };
  class Layout;

  // The frames of the encoded packets of a chunk's part.
  struct PacketFrames {
    size_t count = 0, capacity_bytes = 0;

    // For a part of so many bytes of raw values.
    static PacketFrames of(const PlanFacts& facts, size_t part_bytes);
    size_t stride() const {
      constexpr size_t line = channel::cache_line_bytes;
      return (sizeof(PacketHeader) + capacity_bytes + line - 1) / line * line;
    }
    size_t bytes() const { return count * stride(); }
  };

  static size_t index(int rank, plan::Buffer buffer) {
    return static_cast<size_t>(rank) * 3 + static_cast<size_t>(buffer);
  }
  uint32_t scratch_chunks(int rank, plan::Buffer buffer) const {
    return buffer == plan::Buffer::scratch ? scratch_chunks_[static_cast<size_t>(rank)] : 0;
  }
  void use_rings(Communicator& comm, const plan::Plan& plan);
  void make_private_scratch(const plan::Plan& plan, int rank);
  void overlay_buffers(const plan::Plan& plan);
  void make_group_buffers(const plan::Rank& rank);

  size_t part_bytes_ = 0;
  size_t frame_bytes_ = 0;
  PacketFrames packet_frames_;
  bootstrap::SharedRange region_;
  std::vector<channel::RingSender*> senders_;      // by channel; NULL unless this rank sends on it
  std::vector<channel::RingReceiver*> receivers_;  // by channel; NULL unless this rank receives from it
  std::vector<std::unique_ptr<channel::RingSender>> own_senders_;
  std::vector<std::unique_ptr<channel::RingReceiver>> own_receivers_;
  PaddedSemaphore* semaphores_ = nullptr;  // by channel
  std::vector<Exposed> exposed_;           // by rank and buffer
  std::vector<uint32_t> scratch_chunks_;   // by rank
  std::vector<std::byte> private_;         // scratch that no other rank accesses
  std::vector<GroupBuffers> groups_;
  std::vector<std::vector<std::byte>> group_memory_;
};

}  // namespace narrowcast::executor::host
