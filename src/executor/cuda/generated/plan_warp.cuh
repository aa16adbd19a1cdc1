// A warp of a generated kernel that works by blocks. Generated code calls its functions in the order of the plan's
// steps.
//
// The whole warp calls every function. A function that returns false found the communicator stopped, or stopped it.
#pragma once

#include "executor/cuda/blocks/reduce_block.cuh"
#include "executor/cuda/generated/combine_blocks.cuh"
#include "executor/cuda/generated/plan_payloads.cuh"

namespace narrowcast::executor::cuda::generated {

// Settings of a kernel:
//   Codec      of the coded messages and packets; raw if there are none
//   coding     the codec with its parameters, as a number
//   dtype, op  of the call
//   Ends       the WarpEnds
//   rings      between two ranks, at most
//   workers    warps of a CTA that run groups
//   scratch_copies     of the plan
//   has_one_chunk      pieces have one chunk
//   counts_calls       the numbers of calls are used
//   announces_buffers  other ranks access this rank's input or output
//   loads_chunks_ahead, loads_messages_ahead   what the heads of items say
// and what reductions combine, except for those of a message and a local chunk:
//   reduces_messages   several messages
//   reduces_locals     several local chunks
//   reduces_remote     chunks in memory of other ranks
//   reduces_packets    encoded packets
template <typename Settings>
class PlanWarp : public PlanPayloads<Settings> {
  using Base = PlanPayloads<Settings>;
  using Codec = typename Base::Codec;
  using Ends = typename Settings::Ends;
  using Part = typename Base::Part;
  using Base::block_bytes;

 public:
  using Base::Base;

  using Sums = BlockSums<Settings::dtype, block_bytes>;

  // --- sources; prefetch_next() follows ---

  // Starts to load the warp's block of a local chunk, unless the previous item has.
  __device__ void start(uint32_t chunk) {
    if (loading_bytes_ != 0) return;
    const Part part = this->part(chunk, block_);
    if (part.bytes != 0) start_loading(part);
  }
  // Makes the block that is being loaded the current values.
  __device__ void load() {
    if (loading_bytes_ != 0) swap();
    const uint32_t bytes = finish_loading();
    device::wait_for_store_sources(thread_);  // before prefetch_next() and the codec overwrite the other buffers
    set_values(current_, bytes);
  }
  // Makes the warp's block of a chunk in memory of another rank the current values.
  __device__ bool load_remote(uint32_t rank, uint32_t chunk) {
    device::wait_for_store_sources(thread_);
    uint32_t bytes = 0;
    if (!copy_remote(rank, chunk, buffer(current_), bytes)) return false;
    set_values(current_, bytes);
    return true;
  }

  // Makes the next message of a receiving end the current values; if it may be encoded, after open().
  // other: 1, but 0 before reduce_with_message().
  __device__ bool receive(uint32_t end, uint32_t other) { return take_payload(1u << end, other); }
  __device__ bool open() { return this->template open_message<true>(); }
  // Receives one message of each of `count` ends, in any order, and stores each in a chunk. table: pairs of a different
  // end and a chunk. Contains prefetch_next().
  template <bool coded>
  __device__ bool receive_any(const uint32_t* table, uint32_t count) {
    EndMask open = 0;
    uint32_t chunk = 0;  // thread n: of end n
    for (uint32_t i = 0; i < count; ++i) {
      open |= 1u << table[2 * i];
      if (thread_ == static_cast<int>(table[2 * i])) chunk = table[2 * i + 1];
    }
    while (open != 0) {
      if (!take_payload(open, 1)) return false;
      const int end = payload_.end();
      open &= ~(1u << end);
      if (open != 0) {
        poll_payload(open, (end + 1) % 32);
      } else {
        prefetch_next();
      }
      const uint32_t to = __shfl_sync(device::all_lanes, chunk, end);
      if (!this->template open_message<coded>()) return false;
      store(to);
    }
    return true;
  }

  // Makes encoded packets, which `writer` has stored in the scratch of `rank`, the current values after open_packets().
  __device__ bool receive_packets(uint32_t rank, uint32_t chunk, uint32_t writer) {
    device::wait_for_store_sources(thread_);
    return take_packets(rank, chunk, writer);
  }
  using Base::open_packets;

  // Combines sources in their order. table: SourceRefs. The load of the first local chunk has been started. finish()
  // makes the result the current values.
  template <bool coded>
  __device__ bool reduce(Sums& sums, const uint32_t* table, uint32_t count) {
    device::wait_for_store_sources(thread_);
    uint32_t bytes = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
      const SourceRef from = source(table, i);
      const char* term;
      if (from.kind() == SourceRef::local) {
        bytes = finish_loading();
        term = buffer(current_ ^ 1);
      } else {
        if (Ends::receivers != 0 && from.kind() == SourceRef::message) {
          if (!take_payload_of_reduction(static_cast<int>(from.number())) || !this->template open_message<coded>())
            return false;
          bytes = bytes_;
        } else if (Settings::reduces_packets && from.kind() == SourceRef::encoded_packets) {
          if (!take_packets(from.number(), from.chunk, from.writer()) || !open_packets(from.writer())) return false;
          bytes = bytes_;
        } else if constexpr (Settings::reduces_remote) {
          if (!copy_remote(from.number(), from.chunk, buffer(current_), bytes)) return false;
          values_ = current_;
        }
        term = buffer(values_);
      }
      if (i == 0) {
        sums.set(term, thread_);
      } else {
        sums.reduce(Settings::op, term, thread_);
      }
      __syncwarp();  // all lanes have read it
      if (from.kind() == SourceRef::local) {
        if constexpr (Settings::reduces_locals) start_local_after(table, i + 1, count);
      } else if constexpr (Settings::reduces_messages) {
        poll_next_source(table, i + 1, count);
      }
    }
    swap();
    set_values(current_, bytes);
    return true;
  }
  // Rounds once. divides: the result is an average, and contains the values of all ranks.
  template <bool divides>
  __device__ void finish(const Sums& sums) {
    sums.finish(divides ? NCAST_AVG : NCAST_SUM, call_.peers.ranks, buffer(values_), thread_);
    __syncwarp();
  }
  // Combines the message that has been received with the local chunk that is being loaded, and makes the result the
  // current values.
  template <bool coded, bool divides>
  __device__ bool reduce_with_message() {
    if (!this->template open_message<coded>()) return false;
    const char* const message = buffer(values_);
    const uint32_t bytes = finish_loading();
    swap();
    set_values(current_, bytes);
    const Average<typename Number<Settings::dtype>::Accumulator> average(divides ? NCAST_AVG : NCAST_SUM,
                                                                         call_.peers.ranks);
    combine_blocks<Settings::dtype, Settings::op, block_bytes>(message, buffer(values_), average, thread_);
    __syncwarp();
    return true;
  }
  using Base::prefetch_next;

  // Counts what as many sources in memory of other ranks as the warp has just read are long: as if it were sent.
  __device__ void count_gets(uint32_t count) {
    if (thread_ == 0) ends_.wire_vectors += count * (format::aligned(bytes_) / format::alignment);
  }

  // --- destinations of the current values ---

  // Stores them in a local chunk.
  __device__ void store(uint32_t chunk) {
    const Part part = this->part(chunk, block_);
    const uint32_t bytes = min(part.bytes, bytes_);
    if (bytes != 0) store_values(part.values, buffer(values_), bytes, thread_);
  }
  // Stores them in a chunk in memory of another rank.
  __device__ bool store_remote(uint32_t rank, uint32_t chunk) {
    Part part;
    if (!find_remote(rank, chunk, part)) return false;
    const uint32_t bytes = min(part.bytes, bytes_);
    __syncwarp();
    if (bytes != 0) device::copy_by_warp(part.values, buffer(values_), bytes, thread_);
    if (thread_ == 0) ends_.wire_vectors += (bytes + format::alignment - 1) / format::alignment;
    __syncwarp();
    return true;
  }
  // Sends them to each of these sending ends, unchanged.
  __device__ bool send(EndMask to) { return put(to, buffer(values_), raw_size()); }
  // What a sending end or encoded packets get: the values encoded, or as they are if that is not longer.
  struct Payload {
    const char* data;
    PayloadSize size;
  };
  // chunk, stage: of the context, for codecs that use it.
  __device__ Payload encoded_values(uint32_t chunk = 0, uint32_t stage = 0) {
    const PayloadSize size =
        bytes_ == 0 ? raw_size()
                    : encode<Codec>(device::parameters_of<Codec>(Settings::coding), context_of(chunk, stage),
                                    buffer(values_), bytes_, encoded_buffer(), memory_.scratch, thread_);
    return {size.is_coded() ? encoded_buffer() : buffer(values_), size};
  }
  // Stores a payload of the current values in a local chunk, as other ranks decode it. Afterwards there are no current
  // values.
  __device__ void store_decoded(uint32_t chunk, Payload payload) {
    const Part part = this->part(chunk, block_);
    const uint32_t bytes = min(part.bytes, bytes_);
    if (payload.size.is_coded()) {
      device::wait_for_store_sources(thread_);
      __syncwarp();  // all lanes have read the values
      device::decode_block<Codec>(device::parameters_of<Codec>(Settings::coding), payload.data, payload.size.bytes(),
                                  buffer(values_), memory_.scratch, thread_);
      __syncwarp();
    }
    if (bytes != 0) store_values(part.values, buffer(values_), bytes, thread_);
  }
  // The payload of the message or the packets that were received last.
  __device__ Payload received_payload() const { return {buffer(current_), payload_.size()}; }
  __device__ bool send_payload(EndMask to, Payload payload) { return put(to, payload.data, payload.size); }
  // Stores a payload of the current values as packets in the scratch of `rank`.
  __device__ void store_packets(uint32_t rank, uint32_t chunk, Payload payload) {
    __syncwarp();
    if (bytes_ != 0) {
      device::copy_by_warp(packets_at(rank, chunk), payload.data, payload.size.bytes(), thread_);
      if (thread_ == 0 && static_cast<int>(rank) != call_.peers.rank)
        ends_.wire_vectors += payload.size.bytes() / format::alignment;
    }
    __syncwarp();
    this->raise_packet_flag(rank, chunk, payload.size, bytes_);
  }

  // Saves the state of the rings at the end of the program.
  __device__ void end() {
    device::wait_for_store_sources(thread_);
    if constexpr (Ends::receivers != 0) receiver().close();
    if constexpr (Ends::senders != 0) sender().close();
    if (thread_ == 0 && ends_.wire_vectors != 0)
      atomicAdd(&call_.byte_counters->wire_bytes,
                static_cast<unsigned long long>(ends_.wire_vectors) * format::alignment);
  }

 private:
  __device__ device::BlockContext context_of(uint32_t chunk, uint32_t stage) const {
    if constexpr (!device::UsesContext<Codec>) return {};
    const ChunkRef ref{chunk};
    const uint64_t first = ref.piece() * call_.piece_bytes + min(ref.chunk() * call_.chunk_bytes, call_.piece_bytes);
    return {(first + (call_.first_block + block_) * block_bytes) / device::value_bytes<Codec>, this->call_number() - 1,
            static_cast<uint32_t>(call_.peers.rank), stage};
  }

  using Base::block_;
  using Base::buffer;
  using Base::bytes_;
  using Base::call_;
  using Base::copy_remote;
  using Base::current_;
  using Base::encoded_buffer;
  using Base::ends_;
  using Base::find_remote;
  using Base::finish_loading;
  using Base::loading_bytes_;
  using Base::memory_;
  using Base::packets_at;
  using Base::payload_;
  using Base::poll_next_source;
  using Base::poll_payload;
  using Base::put;
  using Base::raw_size;
  using Base::receiver;
  using Base::sender;
  using Base::set_values;
  using Base::source;
  using Base::start_loading;
  using Base::start_local_after;
  using Base::swap;
  using Base::take_packets;
  using Base::take_payload;
  using Base::take_payload_of_reduction;
  using Base::thread_;
  using Base::values_;
};

}  // namespace narrowcast::executor::cuda::generated
