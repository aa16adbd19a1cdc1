// values -> a packed frame in one pass: teams of warps code neighbouring blocks, then learn where their payloads go by a
// decoupled look-back over the teams before them (Merrill and Garland, "Single-pass parallel prefix scan with decoupled
// look-back", 2016).
#include "codec/cuda/launch.h"
#include "codec/cuda/warps.cuh"

namespace narrowcast::codec::cuda {
namespace {

// Teams of a CTA run out of step, so that one codes while another waits for its place.
inline constexpr int teams_per_cta = 3;
template <format::window::ValueType Type>
inline constexpr int warps_per_team = warps_per_cta<Type> / teams_per_cta;

// What a team has told about its tile: the tile's units, then the units up to its end.
enum : uint32_t { state_none = 0, state_tile = 1, state_through = 2 };
struct Workspace {
  unsigned long long next_tile;
  unsigned long long unused;  // keeps what follows 16-byte aligned
  unsigned long long told[];  // state << 32 | units
};

struct TeamMemory {
  unsigned long long tile;  // the next
  uint32_t units[8];        // of each warp's payload
  uint32_t begin;           // of the tile's payloads
};

__device__ void tell(Workspace* workspace, uint64_t tile, uint32_t state, uint32_t units) {
  const unsigned long long word = static_cast<unsigned long long>(state) << 32 | units;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&workspace->told[tile]), "l"(word) : "memory");
}
__device__ unsigned long long told(const Workspace* workspace, int64_t tile) {
  if (tile < 0) return static_cast<unsigned long long>(state_through) << 32;
  unsigned long long word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(&workspace->told[tile]) : "memory");
  return word;
}

// The units of all tiles before `tile`: the warp reads 32 of them at a time. It ends, because tiles are handed out in
// order: whoever works on an earlier one is running.
__device__ uint32_t look_back(const Workspace* workspace, uint64_t tile, int lane) {
  uint32_t units = 0;
  for (int64_t nearest = static_cast<int64_t>(tile) - 1;; nearest -= 32) {
    uint32_t through, missing;
    unsigned long long word;
    do {
      word = told(workspace, nearest - lane);
      through = __ballot_sync(device::all_lanes, word >> 32 == state_through);
      missing = __ballot_sync(device::all_lanes, word >> 32 == state_none);
    } while ((missing & (through != 0 ? (through & -through) - 1 : device::all_lanes)) != 0);
    const uint32_t last = through != 0 ? __ffs(through) - 1 : 31;
    units += __reduce_add_sync(device::all_lanes, static_cast<uint32_t>(lane) <= last ? static_cast<uint32_t>(word) : 0u);
    if (through != 0) return units;
  }
}

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(warps_per_cta<format::window::value_type(Dtype)> * 32, 1)
    encode_frame_kernel(const char* values, format::FrameHeader header, char* frame, Workspace* workspace) {
  constexpr format::window::ValueType Type = format::window::value_type(Dtype);
  using Block = window::Block<Type>;
  constexpr uint32_t block_bytes = Block::values_bytes;
  constexpr int team_warps = warps_per_team<Type>;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  const int warp = threadIdx.x / 32 % team_warps, team = threadIdx.x / 32 / team_warps;
  auto* memories = reinterpret_cast<WarpMemory<Type>*>(shared_memory);
  WarpMemory<Type>& memory = memories[threadIdx.x / 32];
  TeamMemory& team_memory = reinterpret_cast<TeamMemory*>(memories + warps_per_cta<Type>)[team];
  device::LoadBarrier barrier(&memory.barrier, lane);
  const auto team_sync = [&] { asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(team_warps * 32) : "memory"); };

  const format::FrameLayout layout = format::frame_layout(header.elems, Type.block_elems());
  auto* ends = reinterpret_cast<uint32_t*>(frame + sizeof header);
  char* payloads = frame + layout.payload_offset;
  const uint64_t whole_blocks = header.elems / Type.block_elems();
  const uint32_t last_bytes = static_cast<uint32_t>(header.elems % Type.block_elems()) * Type.value_bytes;
  const uint64_t tiles = (layout.blocks + team_warps - 1) / team_warps;
  const bool aligned = is_aligned(values);

  const auto start_load = [&](uint64_t tile) {
    const uint64_t block = tile * team_warps + warp;
    if (block >= whole_blocks) return;
    if (aligned) {
      barrier.load(memory.values, values + block * block_bytes, block_bytes, lane);
    } else {
      __syncwarp();
      copy_block<Type>(memory.values, values + block * block_bytes, lane);
    }
  };

  const bool takes_tiles = warp == 0 && lane == 0;
  if (takes_tiles) team_memory.tile = atomicAdd(&workspace->next_tile, 1ull);
  team_sync();
  uint64_t tile = team_memory.tile;
  start_load(tile);
  while (tile < tiles) {
    const uint64_t block = tile * team_warps + warp;
    unsigned long long taken = 0;
    if (takes_tiles) taken = atomicAdd(&workspace->next_tile, 1ull);  // its latency passes under the coding

    uint32_t bytes = 0;
    if (block < whole_blocks) {
      if (aligned) {
        barrier.wait();
      } else {
        __syncwarp();
      }
      device::wait_for_store_sources(lane);  // of the last tile's payload
      bytes = Block::encode(memory.values, memory.payload, memory.scratch, lane);
    } else if (block == whole_blocks && last_bytes != 0) {
      bytes = static_cast<uint32_t>(format::aligned(last_bytes));
    }
    const bool whole = block < whole_blocks, raw = bytes == block_bytes;
    if (lane == 0) team_memory.units[warp] = bytes / format::alignment;
    if (takes_tiles) team_memory.tile = taken;
    team_sync();

    const uint64_t next_tile = team_memory.tile;
    if (!raw) start_load(next_tile);
    const uint32_t of_warp = lane < team_warps ? team_memory.units[lane] : 0;
    const uint32_t before = __reduce_add_sync(device::all_lanes, lane < warp ? of_warp : 0u);
    const uint32_t all = __reduce_add_sync(device::all_lanes, of_warp);
    if (warp == 0) {
      if (lane == 0 && tile != 0) tell(workspace, tile, state_tile, all);
      const uint32_t begin = look_back(workspace, tile, lane);
      if (lane == 0) {
        tell(workspace, tile, state_through, begin + all);
        team_memory.begin = begin;
      }
    }
    team_sync();

    const uint32_t begin = team_memory.begin + before;
    const uint32_t end = begin + bytes / format::alignment;
    char* payload = payloads + uint64_t{begin} * format::alignment;
    if (lane == 0 && bytes != 0) ends[block] = end;
    if (whole) {
      device::bulk_store(payload, raw ? memory.values : memory.payload, bytes, lane);
      if (raw) {
        device::wait_for_store_sources(lane);
        start_load(next_tile);
      }
    } else if (bytes != 0) {  // the short block is stored raw
      copy_bytes(payload, values + block * block_bytes, last_bytes, lane);
      if (last_bytes + lane < bytes) payload[last_bytes + lane] = 0;
    }
    if (block + 1 == layout.blocks) {  // whose end is the frame's
      header.wire_bytes = layout.payload_offset + uint64_t{end} * format::alignment;
      if (lane == 0) *reinterpret_cast<format::FrameHeader*>(frame) = header;
      const uint64_t padding = (layout.payload_offset - sizeof header) / sizeof(uint32_t) - layout.blocks;
      if (static_cast<uint64_t>(lane) < padding) ends[layout.blocks + lane] = 0;
    }
    tile = next_tile;
  }
  device::wait_for_stores(lane);
}

template <format::window::ValueType Type>
uint64_t tiles_of(uint64_t blocks) {
  return (blocks + warps_per_team<Type> - 1) / warps_per_team<Type>;
}

}  // namespace

size_t encode_workspace_bytes(uint64_t blocks) {
  constexpr int fewest_warps = warps_per_team<format::window::float64>;
  return format::aligned(sizeof(Workspace) + (blocks + fewest_warps - 1) / fewest_warps * sizeof(unsigned long long));
}

cudaError_t encode_frame(const Values& values, const format::FrameHeader& header, char* frame, void* workspace,
                         const Launch& launch) {
  return dispatch(values.dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType Type = format::window::value_type(Dtype);
    const uint64_t tiles = tiles_of<Type>(header.blocks);
    cudaError_t error = cudaMemsetAsync(workspace, 0, sizeof(Workspace) + tiles * sizeof(unsigned long long), launch.stream);
    if (error != cudaSuccess) return error;
    uint32_t ctas;
    error = grid_size(tiles, teams_per_cta, launch.max_ctas, &ctas);
    if (error != cudaSuccess) return error;
    return launch_warps<Type>(encode_frame_kernel<Dtype>, ctas, teams_per_cta * sizeof(TeamMemory), launch.stream,
                              static_cast<const char*>(values.data), header, frame, static_cast<Workspace*>(workspace));
  });
}

}  // namespace narrowcast::codec::cuda
