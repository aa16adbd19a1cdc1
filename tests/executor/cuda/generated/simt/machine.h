// Executes CUDA kernels on the host: threads are fibers of one host thread, warps are scheduled in random order, and
// the asynchronous copies of a warp happen as late as they may, or at once, by chance. Memory is sequentially
// consistent, so this finds faults of logic, such as deadlocks, wrong addresses and buffers that are overwritten too
// early, but no missing fences.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace simt {

inline constexpr uint32_t lanes = 32;

struct Index {
  uint32_t x;
};

// A copy between global and shared memory that has been started.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Warp;
struct Cta;
struct Lane {
  ucontext_t first = {};   // where it begins
  jmp_buf registers = {};  // while it is suspended
  std::unique_ptr<char[]> stack;
  Warp* warp = nullptr;
  Index thread = {}, cta = {}, ctas = {}, threads = {};
  uint32_t number = 0;  // in the warp
  bool began = false, ended = false, waits = false, polled = false;
  std::vector<Copy> loads, bulk_loads, bulk_stores;
  std::vector<std::vector<Copy>> load_groups;  // those that have been committed
};
struct Warp {
  Cta* cta = nullptr;
  Lane lane[lanes];
  uint32_t arrived = 0;  // lanes that wait for the others
  uint64_t exchanged[2][lanes] = {};
  uint32_t exchanges[lanes] = {};
};
struct Cta {
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<char> shared;
  uint32_t arrived = 0;  // threads that wait at __syncthreads()
  struct Barrier {
    std::vector<Lane*> waiting;
    bool all = true, last_all = true;  // of the values of those that wait, and of those that waited last
  } barriers[16];
  std::function<void()> kernel;
  uint32_t live_warps = 0;
};

class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) {}
  // Adds the CTAs of a kernel.
  void launch(uint32_t ctas, uint32_t warps, size_t shared_bytes, const std::function<void()>& kernel);
  // Runs all kernels at the same time, until they end. Returns false if none of them makes progress any more.
  // most_ctas: CTAs that run at once. The others start in random order, each when one has ended.
  bool run(size_t most_ctas = ~size_t{0});

  bool coin() { return (random_() & 1) != 0; }

 private:
  static void enter();
  void run_lane(Lane& lane);
  bool run_warp(Warp& warp);

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  jmp_buf scheduler_ = {};
  friend void yield_to_scheduler();
};

extern Machine* machine;
extern Lane* current;
extern std::map<const void*, std::vector<Copy>> pending_loads;  // bulk loads, by their barrier

// The thread looks at memory that another warp may change: lets other warps run.
void poll();
// Waits for all threads of the warp, or of the CTA, that have not ended.
void wait_for_warp();
void wait_for_cta();
// Waits for all threads of `warps` warps; the barriers of a CTA have numbers below 16. Whether `value` is true in all.
bool wait_for_warps(uint32_t barrier, uint32_t warps, bool value);
// The values that the threads of the warp pass, by lane.
const uint64_t* exchange(uint64_t value);
char* shared_memory();

// Executes the copies now, or later by chance.
void start(std::vector<Copy>& copies, const Copy& copy);
void finish(std::vector<Copy>& copies);
// Ends a group of loads of this thread; finishes all groups except for the last ones.
void commit_loads();
void finish_loads_but(size_t groups);

}  // namespace simt
