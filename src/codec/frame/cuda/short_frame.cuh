// values -> a packed frame that is so short that every CTA codes at most two tiles of neighbouring blocks. The payloads
// of the first tile are stored while the second one is coded, and the workspace need not be cleared. This matters for
// calls of 15 microseconds.
#pragma once

#include "codec/frame/cuda/frame_output.cuh"
#include "codec/frame/cuda/published_words.cuh"
#include "codec/frame/cuda/warps.cuh"
#include "device/ptx/barrier.cuh"

namespace narrowcast::codec::cuda {

template <BlockCodec Codec>
inline constexpr uint32_t max_short_frame_coders = Codec::values_bytes > 4096 ? 8 : 18;
// Each CTA codes up to two tiles.
inline constexpr uint32_t max_short_frame_ctas = 256;

// Two buffers hold the values of two turns, and the third one the payload. The next payload is written to the buffer of
// the previous values.
template <BlockCodec Codec>
struct alignas(128) ShortFrameWarp {
  char buffers[3][Codec::values_bytes];
  typename Codec::Scratch scratch;
  uint64_t barriers[2];
};
// Shared by the warps of a CTA. Turns alternate between two of these.
struct ShortFrameTurn {
  uint32_t units[32];   // size of each coder's payload
  uint32_t buffer[32];  // the coder's buffer that holds the payload
  uint64_t coded;       // barrier: all coders have written the above
};
struct ShortFrameCta {
  ShortFrameTurn turns[2];
  uint32_t participants;  // number of CTAs that take part
  uint64_t counted;       // barrier: `participants` has been written
  uint64_t stored;        // barrier: the payloads of a turn have been stored

  // Called by one thread, before a __syncthreads.
  __device__ void init(uint32_t coders) {
    for (ShortFrameTurn& turn : turns) device::barrier_init(&turn.coded, coders);
    device::barrier_init(&counted, 32);
    device::barrier_init(&stored, 32);
  }
  __device__ ShortFrameTurn& turn(uint32_t number) { return turns[number % 2]; }
  __device__ static uint32_t parity(uint32_t turn) { return turn / 2 % 2; }
};

template <BlockCodec Codec>
class ShortFrameEncoder {
 public:
  __device__ ShortFrameEncoder(const EncodeFrameArguments& arguments, PublishedLayout layout, ShortFrameCta& cta,
                               uint32_t coders, int lane)
      : values_(arguments.values),
        header_(arguments.header),
        parameters_(device::parameters_of<Codec>(arguments.codec)),
        layout_(layout),
        cta_(cta),
        coders_(coders),
        whole_blocks_(static_cast<uint32_t>(header_.elems / block_elems<Codec>)),
        lane_(lane) {}

  // Runs a coder, which codes one block of each tile of the CTA. The tiles of a CTA are the one with the CTA's number
  // and every participants-th after it.
  __device__ void code(ShortFrameWarp<Codec>& memory, uint32_t coder) {
    BlockLoader<Codec> loaders[2] = {{values_, &memory.barriers[0], lane_}, {values_, &memory.barriers[1], lane_}};
    const auto start_load = [&](uint32_t number, uint32_t tile) {
      const bool loads = tile * coders_ + coder < whole_blocks_;
      if (loads) loaders[number].start(memory.buffers[number], tile * coders_ + coder);
      return loads;
    };
    start_load(0, blockIdx.x);
    uint32_t out = 2;
    bool guessed = false;  // the second tile is being loaded although it is not yet known to be this CTA's
    const auto code_tile = [&](uint32_t turn, uint32_t tile, uint32_t from) {
      const uint32_t block = tile * coders_ + coder;
      ShortFrameTurn& stage = cta_.turn(turn);
      uint32_t bytes = 0;
      if (block < whole_blocks_) {
        loaders[from].wait();
        if (turn == 0)
          guessed = start_load(1, tile + layout_.ctas);  // earlier, it would delay the first tile of other warps
        bytes = device::encode_block<Codec>(parameters_, device::context_in_frame<Codec>(block), memory.buffers[from],
                                            memory.buffers[out], memory.scratch, lane_);
        const bool raw = bytes == Codec::values_bytes;  // the values stay in their buffer and are stored from there
        if (lane_ == 0) stage.buffer[coder] = raw ? from : out;
        if (!raw) out = from;
        device::order_stores_before_bulk_copies();
      } else if (block == whole_blocks_) {
        bytes = static_cast<uint32_t>(format::aligned(header_.elems % block_elems<Codec> * value_bytes<Codec>));
      }
      if (lane_ == 0) stage.units[coder] = bytes / format::alignment;
      __syncwarp();
      if (lane_ == 0) device::barrier_arrive(&stage.coded);
    };
    code_tile(0, blockIdx.x, 0);
    if (layout_.tiles <= layout_.ctas) return;

    device::barrier_wait(&cta_.counted, 0);
    const uint32_t participants = cta_.participants;
    const bool all = participants == layout_.ctas;
    if (!all && guessed) loaders[1].wait();
    if (blockIdx.x >= participants) return;
    for (uint32_t turn = 1, tile = blockIdx.x + participants; tile < layout_.tiles; ++turn, tile += participants) {
      if (!all) {  // some CTAs did not start in time, so there are more than two turns: run them one at a time
        device::barrier_wait(&cta_.stored, (turn - 1) % 2);
        out = 2;
        start_load(1, tile);
      }
      code_tile(turn, tile, 1);
    }
  }

  // Runs the storing warp, which publishes the sizes of the CTA's tiles, waits until their positions are known, and
  // stores them.
  __device__ void store(ShortFrameWarp<Codec>* memories, const PublishedWords& published, char* frame) {
    uint32_t participants = layout_.ctas;
    if (layout_.tiles > layout_.ctas) {
      participants = published.participants(blockIdx.x);
      if (lane_ == 0) cta_.participants = participants;
      device::barrier_arrive(&cta_.counted);
      if (blockIdx.x >= participants) return;
    }
    const FrameWriter writer{frame, header_, format::frame_layout(header_.elems, block_elems<Codec>).payload_offset};
    uint32_t begin = 0, before = 0;  // `begin` is the sum of the units of the first `before` tiles
    for (uint32_t turn = 0, tile = blockIdx.x; tile < layout_.tiles; ++turn, tile += participants) {
      const ShortFrameTurn& stage = cta_.turn(turn);
      const uint32_t first = tile * coders_, block = first + lane_;
      device::barrier_wait(&cta_.turn(turn).coded, ShortFrameCta::parity(turn));
      const uint32_t units = lane_ < static_cast<int>(coders_) ? stage.units[lane_] : 0;
      const uint32_t up_to = device::inclusive_scan(units);
      published.publish_units(tile, __shfl_sync(device::all_lanes, up_to, 31));
      // This waits only for CTAs that are running: participants, or in the first turn CTAs with lower numbers, which
      // started earlier.
      begin += published.units(before, tile);
      before = tile;

      const uint32_t own = begin + up_to - units;
      if (units != 0 && block < whole_blocks_)
        device::bulk_store_by_thread(writer.payload_at(own), memories[lane_].buffers[stage.buffer[lane_]],
                                     units * static_cast<uint32_t>(format::alignment));
      const uint32_t short_block = __ballot_sync(device::all_lanes, units != 0 && block == whole_blocks_);
      if (short_block != 0)
        store_short_block<Codec>(writer.payload_at(__shfl_sync(device::all_lanes, own, __ffs(short_block) - 1)),
                                 values_, header_.elems, lane_);
      writer.write_ends(first, min(coders_, header_.blocks - first), own + units, lane_);
      if (tile + participants >= layout_.tiles) break;
      if (participants == layout_.ctas) continue;
      device::wait_for_store_sources_by_thread();
      device::barrier_arrive(&cta_.stored);
    }
    device::wait_for_store_sources_by_thread();
  }

 private:
  const char* values_;
  const format::FrameHeader& header_;
  const device::Parameters<Codec> parameters_;
  PublishedLayout layout_;
  ShortFrameCta& cta_;
  uint32_t coders_, whole_blocks_;
  int lane_;
};

template <typename Codec>
__global__ void __launch_bounds__((max_short_frame_coders<Codec> + 1) * 32, 1)
    encode_short_frame_kernel(const __grid_constant__ EncodeFrameArguments arguments,
                              const __grid_constant__ Nonce nonce, PublishedLayout layout) {
  extern __shared__ char shared_memory[];
  const uint32_t coders = blockDim.x / 32 - 1, warp = device::warp_id();
  const int lane = device::lane_id();
  auto* const memories = reinterpret_cast<ShortFrameWarp<Codec>*>(shared_memory);
  auto& cta = *reinterpret_cast<ShortFrameCta*>(memories + coders);
  if (threadIdx.x == 0) cta.init(coders);
  __syncthreads();
  ShortFrameEncoder<Codec> encoder(arguments, layout, cta, coders, lane);
  if (warp < coders) {
    encoder.code(memories[warp], warp);
  } else {
    encoder.store(memories, PublishedWords(arguments.workspace, nonce, layout, lane), arguments.frame);
  }
}

}  // namespace narrowcast::codec::cuda
