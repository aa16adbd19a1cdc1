// values -> a packed frame in one pass. The warps of a CTA code a tile of neighbouring blocks; one more warp finds where
// the tile's payloads begin, while the others already code the next tile.
#include "codec/cuda/launch.h"
#include "codec/cuda/look_back.cuh"
#include "codec/cuda/warps.cuh"
#include "device/ptx/barrier.cuh"

namespace narrowcast::codec::cuda {
namespace {

// Three buffers a warp: values, the payload being made, and the one before it, which waits for its place.
template <format::window::ValueType Type>
inline constexpr int most_coders = Type.block_bytes() > 4096 ? 8 : 16;
// For the size of the workspace, whatever the device.
inline constexpr int fewest_coders = 2;

// What passes between the coders and the placing warp for one tile; two tiles are under way.
struct TileStage {
  uint32_t units[16];  // of each coder's payload; then where it begins in the frame
  uint64_t coded;      // barrier: every coder has written its units
  uint64_t placed;     // barrier: the placing warp has put begins in their place
};

struct FrameMemory {
  TileStage stages[2];
  uint32_t tiles[4];  // of this CTA's turns, modulo 4: known one turn ahead
};

// Turn by turn: gathers the units of the CTA's tile, tells them, and places the tile.
__device__ void place_tiles(FrameMemory& memory, Workspace* workspace, uint32_t tile_count, int coders, int lane) {
  uint32_t tile = memory.tiles[0];
  for (uint32_t turn = 0; tile < tile_count; ++turn) {
    TileStage& stage = memory.stages[turn % 2];
    unsigned long long taken = 0;
    if (lane == 0) taken = atomicAdd(&workspace->next_tile, 1ull);  // for the turn after the next

    device::barrier_wait(&stage.coded, turn / 2 % 2);
    const uint32_t units = lane < coders ? stage.units[lane] : 0;
    const uint32_t up_to = device::inclusive_scan(units, lane);
    const uint32_t all = __shfl_sync(device::all_lanes, up_to, 31);
    if (lane == 0) tell(workspace, tile, all);
    const uint32_t begin = look_back(workspace, tile, lane);
    if (lane == 0) {
      tell(workspace, tile, (begin + all) | through);
      memory.tiles[(turn + 2) % 4] = static_cast<uint32_t>(taken);
    }
    if (lane < coders) stage.units[lane] = begin + up_to - units;
    __syncwarp();
    if (lane == 0) device::barrier_arrive(&stage.placed);
    tile = memory.tiles[(turn + 1) % 4];
  }
}

// Stores payloads where they belong, and what surrounds them.
struct FrameWriter {
  char* frame;
  format::FrameHeader header;
  const char* values;
  uint64_t payload_offset;

  template <format::window::ValueType Type>
  __device__ void store(uint32_t block, const char* payload, uint32_t bytes, uint32_t begin, int lane) const {
    auto* ends = reinterpret_cast<uint32_t*>(frame + sizeof header);
    char* to = frame + payload_offset + uint64_t{begin} * format::alignment;
    const uint32_t end = begin + bytes / format::alignment;
    if (lane == 0) ends[block] = end;
    if (uint64_t{block + 1} * Type.block_elems() <= header.elems) {
      device::bulk_store(to, payload, bytes, lane);
    } else {
      store_short_block<Type>(to, values, header.elems, lane);
    }
    if (block + 1 != header.blocks) return;
    // The last block's end is the frame's.
    if (lane == 0) {
      format::FrameHeader whole = header;
      whole.wire_bytes = payload_offset + uint64_t{end} * format::alignment;
      *reinterpret_cast<format::FrameHeader*>(frame) = whole;
    }
    const uint32_t padding = static_cast<uint32_t>((payload_offset - sizeof header) / sizeof *ends) - header.blocks;
    if (static_cast<uint32_t>(lane) < padding) ends[header.blocks + lane] = 0;
  }
};

template <ncast_dtype Dtype>
__global__ void __launch_bounds__((most_coders<format::window::value_type(Dtype)> + 1) * 32, 1)
    encode_frame_kernel(const char* values, format::FrameHeader header, char* frame, Workspace* workspace) {
  constexpr format::window::ValueType Type = format::window::value_type(Dtype);
  using Block = window::Block<Type>;
  using Memory = WarpMemory<Type, 3>;
  constexpr uint32_t block_bytes = Block::values_bytes;
  const int coders = blockDim.x / 32 - 1;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id(), warp = threadIdx.x / 32;
  auto* memories = reinterpret_cast<Memory*>(shared_memory);
  FrameMemory& tile_memory = *reinterpret_cast<FrameMemory*>(memories + coders);

  if (threadIdx.x == 0) {
    for (TileStage& stage : tile_memory.stages) {
      device::barrier_init(&stage.coded, coders);
      device::barrier_init(&stage.placed, 1);
    }
    for (int turn = 0; turn < 2; ++turn)
      tile_memory.tiles[turn] = static_cast<uint32_t>(atomicAdd(&workspace->next_tile, 1ull));
  }
  __syncthreads();
  const uint32_t tile_count = (header.blocks + coders - 1) / coders;
  if (warp == coders) return place_tiles(tile_memory, workspace, tile_count, coders, lane);

  Memory& memory = memories[warp];
  BlockLoader<Type> loader(values, &memory.barrier, lane);
  const FrameWriter writer{frame, header, values, format::frame_layout(header.elems, Type.block_elems()).payload_offset};
  const uint32_t whole_blocks = static_cast<uint32_t>(header.elems / Type.block_elems());
  const uint32_t last_bytes =
      static_cast<uint32_t>(format::aligned(header.elems % Type.block_elems() * Type.value_bytes));

  uint32_t tile = tile_memory.tiles[0], block = tile * coders + warp;
  char* here = memory.buffers[0];                                // the block's values
  char *making = memory.buffers[1], *waiting = memory.buffers[2];  // its payload, and that of the turn before
  uint32_t waiting_block = 0, waiting_bytes = 0;
  if (tile < tile_count && block < whole_blocks) loader.start(here, block);
  for (uint32_t turn = 0;; ++turn) {
    TileStage& stage = tile_memory.stages[turn % 2];
    uint32_t bytes = 0;
    char* payload = making;
    if (tile < tile_count) {
      if (block < whole_blocks) {
        loader.wait();
        device::wait_for_store_sources(lane);  // of two turns before: the buffer that this turn fills
        bytes = Block::encode(here, making, memory.scratch, lane);
        if (bytes == block_bytes) {  // raw: it stays where it is, and the next comes to the other buffer
          payload = here;
          here = making;
        }
      } else if (block == whole_blocks) {
        bytes = last_bytes;  // which is 0 when all blocks are whole
      }
      if (lane == 0) {
        stage.units[warp] = bytes / format::alignment;
        device::barrier_arrive(&stage.coded);
      }
    }
    if (turn != 0) {  // the turn before is placed by now, or soon
      TileStage& before = tile_memory.stages[(turn - 1) % 2];
      device::barrier_wait(&before.placed, (turn - 1) / 2 % 2);
    }
    const uint32_t next_tile = tile < tile_count ? tile_memory.tiles[(turn + 1) % 4] : tile_count;
    const uint32_t next_block = next_tile * coders + warp;
    if (next_tile < tile_count && next_block < whole_blocks) loader.start(here, next_block);
    if (turn != 0 && waiting_bytes != 0)
      writer.store<Type>(waiting_block, waiting, waiting_bytes, tile_memory.stages[(turn - 1) % 2].units[warp], lane);
    if (tile >= tile_count) break;

    making = waiting;
    waiting = payload;
    waiting_block = block;
    waiting_bytes = bytes;
    tile = next_tile;
    block = next_block;
  }
  device::wait_for_stores(lane);
}

}  // namespace

size_t encode_workspace_bytes(uint64_t blocks) {
  return format::aligned(sizeof(Workspace) + (blocks + fewest_coders - 1) / fewest_coders * sizeof(uint32_t));
}

cudaError_t encode_frame(const Values& values, const format::FrameHeader& header, char* frame, void* workspace,
                         const Launch& launch) {
  return dispatch(values.dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType Type = format::window::value_type(Dtype);
    Machine machine;
    cudaError_t error = find_machine(launch, &machine);
    if (error != cudaSuccess) return error;
    const size_t bytes = sizeof(WarpMemory<Type, 3>);
    const uint32_t wanted = std::clamp<uint32_t>((header.blocks + machine.ctas - 1) / machine.ctas, fewest_coders,
                                                 most_coders<Type>);
    const uint32_t coders = machine.warps(bytes, sizeof(FrameMemory), static_cast<int>(wanted));
    const uint32_t tiles = (header.blocks + coders - 1) / coders;
    error = cudaMemsetAsync(workspace, 0, sizeof(Workspace) + tiles * sizeof(uint32_t), launch.stream);
    if (error != cudaSuccess) return error;
    return launch_kernel(encode_frame_kernel<Dtype>, std::min(tiles, machine.ctas), coders + 1,
                         coders * bytes + sizeof(FrameMemory), launch.stream, static_cast<const char*>(values.data),
                         header, frame, static_cast<Workspace*>(workspace));
  });
}

}  // namespace narrowcast::codec::cuda
