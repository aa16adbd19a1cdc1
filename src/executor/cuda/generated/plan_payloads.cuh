// The buffers of a warp of a generated kernel, loads of values and payloads into them, ahead of time where possible,
// and the ends of the warp's rings.
#pragma once

#include "executor/cuda/blocks/warp_memory.cuh"
#include "executor/cuda/generated/plan_places.cuh"

namespace narrowcast::executor::cuda::generated {

// The ends of a warp's rings, in shared memory. The last entry is for threads without an end.
template <uint32_t senders_, uint32_t receivers_>
struct WarpEnds {
  static constexpr uint32_t senders = senders_, receivers = receivers_;
  channel::SenderEnd sending[senders + 1];
  channel::ReceiverEnd receiving[receivers + 1];
  uint32_t wire_vectors;  // vectors of 16 bytes sent to other ranks, or got from them
};

template <typename Settings>
using PlanMemory = WarpMemory<typename Settings::Codec, typename Settings::Ends>;

// Settings: see plan_warp.cuh.
template <typename Settings>
class PlanPayloads : public PlanPlaces<Settings> {
  using Base = PlanPlaces<Settings>;
  using Ends = typename Settings::Ends;

 protected:
  using Codec = typename Settings::Codec;
  using Part = typename Base::Part;
  using Base::block_bytes;

 public:
  // ends: the table of sending and receiving ends. index: of the warp in its group.
  __device__ PlanPayloads(const PlanCall& call, PlanMemory<Settings>& memory, SignalQueue& queue, const uint32_t* table,
                          uint32_t index, int thread)
      : Base(call, index, thread),
        memory_(memory),
        ends_(memory.state),
        queue_(queue),
        loader_(&memory.barrier, thread) {
    const auto end_of = [&](uint32_t first, uint32_t count) {
      const EndRef ref{static_cast<uint32_t>(thread) < count ? table[first + thread] : EndRef::none};
      return End{ref.peer(), ref.ring() + index * Settings::rings, call.slots};
    };
    const End to = end_of(0, Ends::senders), from = end_of(Ends::senders, Ends::receivers);
    peers_ = static_cast<uint32_t>(to.peer & 0xffff) | static_cast<uint32_t>(from.peer) << 16;
    if (thread <= static_cast<int>(Ends::senders))
      ends_.sending[thread] = channel::SenderEnd::of(call.peers, call.rings, to, block_bytes, true);
    if (thread <= static_cast<int>(Ends::receivers))
      ends_.receiving[thread] = channel::ReceiverEnd::of(call.peers, call.rings, from);
    if (thread == 0) ends_.wire_vectors = 0;
    __syncwarp();
  }

 protected:
  // A message: 0 if there is none.
  struct Message {
    uint32_t word;

    // values_bytes: less than 2^15.
    __device__ static Message of(PayloadSize size, int end, uint32_t values_bytes) {
      return {size.word | static_cast<uint32_t>(end) << PayloadSize::bits | values_bytes << (PayloadSize::bits + 5)};
    }
    __device__ PayloadSize size() const { return {word % (1u << PayloadSize::bits)}; }
    __device__ int end() const { return static_cast<int>(word >> PayloadSize::bits) % 32; }
    __device__ uint32_t values_bytes() const { return word >> (PayloadSize::bits + 5); }
    __device__ explicit operator bool() const { return word != 0; }
  };

  __device__ static SourceRef source(const uint32_t* table, uint32_t i) { return {table[2 * i], table[2 * i + 1]}; }

  // opaque() makes the compiler recompute the address at every use: see reducing_warp.cuh and WarpMemory.
  __device__ char* buffer(uint32_t number) const { return memory_.buffers[device::opaque(number)]; }
  __device__ char* encoded_buffer() const { return buffer(2); }
  __device__ void swap() { current_ ^= 1; }
  __device__ void set_values(uint32_t number, uint32_t bytes) {
    values_ = number;
    bytes_ = bytes;
  }

  // --- loading ahead ---

  __device__ void start_loading(const Part& part) {
    device::order_stores_before_bulk_copies();
    loader_.start(buffer(current_ ^ 1), part.values, part.bytes);
    loading_bytes_ = part.bytes;
  }
  // Waits for the values that are being loaded, if any. Returns their bytes.
  __device__ uint32_t finish_loading() {
    const uint32_t bytes = loading_bytes_;
    if (bytes != 0) loader_.wait();
    loading_bytes_ = 0;
    return bytes;
  }
  // Starts to load what the item's head says, into the buffer that is not current.
  __device__ void prefetch_next() {
    if constexpr (Settings::loads_chunks_ahead || Settings::loads_messages_ahead) {
      const ItemHead head{item_[0]};
      if (head.next() == ItemHead::nothing) return;
      const uint32_t block = turn_block_ + call_.warps - head.next_stage_and_1() * call_.warps;
      if (block >= call_.blocks) return;
      if constexpr (Settings::loads_messages_ahead)
        if (!Settings::loads_chunks_ahead || head.next() == ItemHead::message) return poll_payload(item_[1], 0);
      if constexpr (Settings::loads_chunks_ahead) {
        const Part next = part(item_[1], block);
        if (next.bytes != 0) start_loading(next);
      }
    }
  }
  // Starts to load the first local source of a reduction from source i on.
  __device__ void start_local_after(const uint32_t* table, uint32_t i, uint32_t count) {
#pragma unroll 1
    for (; i < count; ++i) {
      if (source(table, i).kind() != SourceRef::local) continue;
      const Part next = part(source(table, i).chunk, block_);
      if (next.bytes != 0) start_loading(next);
      return;
    }
  }

  // --- messages ---

  __device__ int sending_peer() const { return static_cast<int16_t>(peers_); }
  __device__ int receiving_peer() const { return static_cast<int16_t>(peers_ >> 16); }
  __device__ channel::SlotSender sender() {
    return {call_.peers,
            call_.rings,
            {sending_peer(), 0, call_.slots},
            ends_.sending[min(thread_, int{Ends::senders})],
            block_bytes,
            queue_,
            thread_,
            signals_};
  }
  __device__ channel::SlotReceiver receiver() {
    return {call_.peers,
            call_.rings,
            {receiving_peer(), 0, call_.slots},
            ends_.receiving[min(thread_, int{Ends::receivers})],
            block_bytes,
            thread_};
  }

  // Values of 0 bytes are sent as a vector that is not used, because a flag without payload does not exist.
  __device__ PayloadSize raw_size() const {
    return PayloadSize::of(max(static_cast<uint32_t>(format::aligned(bytes_)), uint32_t{format::alignment}), false);
  }
  // The flag's block field holds the bytes of the values.
  __device__ bool put(EndMask to, const char* payload, PayloadSize size) {
    channel::SlotSender sender = this->sender();
    if (!sender.reserve(to)) return false;
    sender.put(to, payload, size, bytes_, false);
    signals_ = sender.signals();
    if (thread_ == 0) ends_.wire_vectors += size.bytes() / format::alignment * __popc(to);
    return true;
  }

  // Starts to load a payload whose flag has been seen. Returns none if there is none, or it is invalid.
  __device__ Message start_payload(const channel::SlotReceiver::Payload& payload, char* to) {
    const PayloadSize size = payload.flag.payload();
    if (!size) return {};
    const uint32_t bytes = payload.flag.block();
    const uint32_t raw_bytes = max(static_cast<uint32_t>(format::aligned(bytes)), uint32_t{format::alignment});
    const bool is_valid = size.is_coded() ? !Codec::is_identity && bytes == block_bytes && size.bytes() <= block_bytes
                                          : bytes <= block_bytes && size.bytes() == raw_bytes;
    if (!is_valid) {
      report_payload(payload.end);
      return {};
    }
    Base::start_copies(to, payload.data, size.bytes(), thread_);
    return Message::of(size, payload.end, bytes);
  }
  __device__ void report_payload(int end) {
    report_corrupt(call_.peers, __shfl_sync(device::all_lanes, receiving_peer(), end), thread_);
  }
  // If a message of these ends has arrived, starts to load it into the buffer that is not current.
  __device__ void poll_payload(EndMask ends, int first) {
    arriving_ = start_payload(receiver().next(ends, first, false), buffer(current_ ^ 1));
  }
  // Makes the next message of any of these ends current: loads it into the buffer that is not current (other = 1) and
  // makes that buffer current, unless that has been started, or into the current one (0). Releases the slot.
  __device__ bool take_payload(EndMask ends, uint32_t other) {
    if (other == 0) device::wait_for_store_sources(thread_);
    if (!arriving_) arriving_ = start_payload(receiver().next(ends, 0, true), buffer(current_ ^ other));
    if (!arriving_) return false;
    current_ ^= other;
    finish_payload();
    device::wait_for_store_sources(thread_);  // before prefetch_next() and the codec overwrite the other buffers
    return true;
  }
  // The same for reductions, whose messages are loaded into the current buffer.
  __device__ bool take_payload_of_reduction(int end) {
    if (!arriving_) arriving_ = start_payload(receiver().wait(end), buffer(current_));
    if (!arriving_) return false;
    finish_payload();
    return true;
  }
  __device__ void finish_payload() {
    payload_ = arriving_;
    arriving_ = {};
    wait_for_payload();
    receiver().release(payload_.end());
    set_values(current_, payload_.values_bytes());
  }
  // Starts to load the next message of a reduction if it has arrived. The current buffer is free. Local sources are in
  // the other buffer.
  __device__ void poll_next_source(const uint32_t* table, uint32_t i, uint32_t count) {
#pragma unroll 1
    while (i < count && source(table, i).kind() == SourceRef::local) ++i;
    if (i >= count || source(table, i).kind() != SourceRef::message) return;
    arriving_ = start_payload(receiver().poll(static_cast<int>(source(table, i).number())), buffer(current_));
  }
  // Decodes the payload in the current buffer. Calls report() if it is corrupt.
  template <bool coded, typename Report>
  __device__ bool open_payload(Report report) {
    const PayloadSize size = payload_.size();
    if (!coded || Codec::is_identity || !size.is_coded()) return true;
    const bool decoded = device::decode_block<Codec>(device::parameters_of<Codec>(Settings::coding), buffer(current_),
                                                     size.bytes(), encoded_buffer(), memory_.scratch, thread_);
    __syncwarp();  // all lanes have decoded
    values_ = 2;
    if (!decoded) report();
    return decoded;
  }
  // The same for the payload of a message.
  template <bool coded>
  __device__ bool open_message() {
    return open_payload<coded>([&] { report_payload(payload_.end()); });
  }

  // --- encoded packets in scratch ---

  __device__ char* packets_at(uint32_t rank, uint32_t chunk) const {
    return this->part_of(this->scratch_of(rank), ChunkRef{chunk}, block_).values;
  }
  // Loads encoded packets of `writer` from the scratch of `rank` into the current buffer.
  __device__ bool take_packets(uint32_t rank, uint32_t chunk, uint32_t writer) {
    PacketFlag flag{};
    if (!this->wait_for_packet_flag(rank, chunk, writer, flag)) return false;
    flag.word = __shfl_sync(device::all_lanes, static_cast<unsigned long long>(flag.word), 0);
    const PayloadSize size = flag.payload();
    const uint32_t bytes = flag.values_bytes();
    if (size.bytes() > block_bytes || (size.is_coded() ? bytes != block_bytes : bytes > size.bytes())) {
      report_packets(writer);
      return false;
    }
    Base::start_copies(buffer(current_), packets_at(rank, chunk), size.bytes(), thread_);
    wait_for_payload();
    if (thread_ == 0 && static_cast<int>(rank) != call_.peers.rank && bytes != 0)
      ends_.wire_vectors += size.bytes() / format::alignment;
    payload_ = Message::of(size, 0, bytes);
    set_values(current_, bytes);
    return true;
  }
  __device__ bool open_packets(uint32_t writer) {
    return open_payload<true>([&] { report_packets(writer); });
  }
  __device__ void report_packets(uint32_t writer) { report_corrupt(call_.peers, static_cast<int>(writer), thread_); }

  using Base::block_;
  using Base::call_;
  using Base::item_;
  using Base::part;
  using Base::thread_;
  using Base::turn_block_;

  PlanMemory<Settings>& memory_;
  Ends& ends_;
  SignalQueue& queue_;
  uint32_t peers_;  // of this thread's sending end, and above it of its receiving end
  ValueLoader loader_;
  uint32_t signals_ = 0;  // pushed in this call
  uint32_t current_ = 0;  // index of the current buffer, 0 or 1
  uint32_t values_ = 0;   // index of the buffer that contains the current values
  uint32_t bytes_ = 0;    // of the current values
  Message payload_{};     // that was received last
  Message arriving_{};    // that is being loaded: into the buffer that is not current, in a reduction into the current
  uint32_t loading_bytes_ = 0;  // of values that are being loaded into the buffer that is not current
};

}  // namespace narrowcast::executor::cuda::generated
