#include "executor/host/plan_calls.h"

#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "executor/host/plan_run.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "support/oracle.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using plan::Operation;
using plan::Plan;

constexpr unsigned char poison = 0xa5;

// The bits of 1 and 2.
std::pair<uint64_t, uint64_t> one_and_two(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_FLOAT16: return {0x3c00, 0x4000};
    case NCAST_BFLOAT16: return {0x3f80, 0x4000};
    case NCAST_FLOAT32: return {0x3f800000, 0x40000000};
    case NCAST_FLOAT64: return {0x3ff0000000000000, 0x4000000000000000};
    case NCAST_FLOAT8_E4M3: return {0x38, 0x40};
    case NCAST_FLOAT8_E5M2: return {0x3c, 0x40};
    default: return {1, 2};
  }
}

// Values whose reductions are exact in any order, even in 8 bits: 0 and 1, or for products 1 and 2.
Bytes exact_values(ncast_dtype dtype, ncast_redop op, size_t count, int rank) {
  const size_t value_bytes = ncast_dtype_bytes(dtype);
  const auto [one, two] = one_and_two(dtype);
  Bytes values(count * value_bytes);
  std::minstd_rand random(static_cast<uint32_t>(rank) * 1000 + static_cast<uint32_t>(count) + 1);
  for (size_t i = 0; i < count; ++i) {
    const bool is_larger = random() % 2 != 0;
    const uint64_t bits = op == NCAST_PROD ? (is_larger ? two : one) : (is_larger ? one : 0);
    std::memcpy(values.data() + i * value_bytes, &bits, value_bytes);
  }
  return values;
}

struct Setup {
  const Plan* plan;
  ncast_dtype dtype;
  size_t count;
  ncast_redop op;
  bool in_place;
};

size_t pieces(operation::Buffer buffer, const Plan& plan, int rank) {
  return operation::pieces(buffer, plan.ranks.size(), rank == plan.root);
}

// What the operation defines as the output of a rank.
Bytes expected_output(const Setup& setup, const std::vector<Bytes>& inputs, int rank) {
  const size_t piece = setup.count * ncast_dtype_bytes(setup.dtype);
  const auto own = static_cast<size_t>(rank) * piece;
  const auto concatenated = [&](size_t offset) {
    Bytes all;
    for (const Bytes& input : inputs) {
      const Bytes part = part_of(input, offset, piece);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  const Bytes& of_root = inputs[static_cast<size_t>(setup.plan->root)];
  switch (setup.plan->operation) {
    case Operation::broadcast: return of_root;
    case Operation::scatter: return part_of(of_root, own, piece);
    case Operation::gather:
    case Operation::all_gather: return concatenated(0);
    case Operation::all_to_all: return concatenated(own);
    case Operation::reduce_scatter: {
      std::vector<Bytes> parts;
      for (const Bytes& input : inputs) parts.push_back(part_of(input, own, piece));
      return reduced(setup.dtype, setup.op, parts);
    }
    default: return reduced(setup.dtype, setup.op, inputs);
  }
}

// Calls of one rank, and their comparison with what the operation defines.
void check_call(const Setup& setup, ncast_loaded_plan* loaded, int rank) {
  const Plan& plan = *setup.plan;
  const auto& row = operation::describe(plan.operation);
  const size_t value_bytes = ncast_dtype_bytes(setup.dtype);
  const size_t piece = setup.count * value_bytes;
  std::vector<Bytes> inputs;
  for (int sender = 0; sender < plan.rank_count(); ++sender) {
    inputs.push_back(exact_values(setup.dtype, setup.op, setup.count * pieces(row.send, plan, sender), sender));
  }
  const Bytes& input = inputs[static_cast<size_t>(rank)];
  const size_t out_bytes = pieces(row.recv, plan, rank) * piece;
  Bytes memory(std::max(input.size(), out_bytes), poison);
  Bytes separate = input;
  unsigned char* send = separate.data();
  unsigned char* recv = memory.data();
  if (setup.in_place && !input.empty() && out_bytes != 0) {
    const size_t own = static_cast<size_t>(rank) * piece;
    send = memory.data() + (input.size() < out_bytes ? own : 0);
    recv = memory.data() + (out_bytes < input.size() ? own : 0);
    std::memcpy(send, input.data(), input.size());
  }
  const ncast_status status = ncast_loaded_plan_run(loaded, send, recv, setup.count, nullptr);
  const Bytes found(recv, recv + out_bytes);
  const Bytes right = out_bytes != 0 ? expected_output(setup, inputs, rank) : Bytes();
  if (status != NCAST_OK || found != right) {
    std::fprintf(stderr, "%s, %d ranks, %zu values of %s, op %d, %s\n", plan.name.c_str(), plan.rank_count(),
                 setup.count, ncast_dtype_name(setup.dtype), static_cast<int>(setup.op),
                 setup.in_place ? "in place" : "not in place");
  }
  EXPECT_OK(status);
  EXPECT(found == right);
  if (!setup.in_place) EXPECT(separate == input);
}

}  // namespace

RandomInterleaving::RandomInterleaving(uint32_t seed) {
  executor::host::set_interleaving([seed](int rank, uint32_t group) {
    static thread_local std::minstd_rand random;
    static thread_local uint32_t seeded = 0;
    const uint32_t own_seed = seed * 100 + static_cast<uint32_t>(rank);
    if (seeded != own_seed) random.seed(seeded = own_seed);
    // Some groups are delayed much longer than others.
    return random() % (2 + (group + seed) % 7) == 0;
  });
}

RandomInterleaving::~RandomInterleaving() { executor::host::set_interleaving({}); }

// Loads the plan on all ranks, in threads, and makes calls of many kinds.
void check_plan(const Plan& plan, const std::vector<size_t>& counts, size_t scratch_bytes) {
  const ncast_plan handle{plan};
  const ncast_unique_id id = new_id();
  run_threads(plan.rank_count(), [&](int rank) {
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.timeout_seconds = 30;
    config.scratch_bytes = scratch_bytes;
    ncast_comm* comm = nullptr;
    EXPECT_OK(ncast_comm_create(&comm, plan.rank_count(), &id, rank, &config));
    const auto check = [&](const Setup& setup) {
      ncast_loaded_plan* loaded = nullptr;
      EXPECT_OK(ncast_plan_load(comm, &handle, setup.dtype, setup.op, &loaded));
      check_call(setup, loaded, rank);
      check_call(setup, loaded, rank);  // with the state that the first call has left
      EXPECT_OK(ncast_loaded_plan_destroy(loaded));
    };
    int turn = 0;
    for (const size_t count : counts) {
      for (const bool in_place : {false, true}) {
        if (in_place ? plan.in_place == plan::InPlace::no : plan.in_place == plan::InPlace::yes) continue;
        // Every type and reduction occurs at some count.
        for (int i = 0; i < 3; ++i, ++turn) {
          const auto dtype = static_cast<ncast_dtype>((turn * 5) % 12);
          const auto op = static_cast<ncast_redop>(turn % 4);
          check({&plan, dtype, count, op, in_place});
        }
        check({&plan, NCAST_INT32, count, NCAST_AVG, in_place});
      }
    }
    EXPECT_OK(ncast_comm_destroy(comm));
  });
}

void check_plan_once(const Plan& plan, const std::vector<size_t>& counts, size_t scratch_bytes, uint32_t seed) {
  const ncast_plan handle{plan};
  const ncast_unique_id id = new_id();
  const auto dtype = static_cast<ncast_dtype>(seed % 12);
  const auto op = static_cast<ncast_redop>(seed / 12 % 4);
  run_threads(plan.rank_count(), [&](int rank) {
    const Comm comm(id, rank, plan.rank_count(), {.scratch_bytes = scratch_bytes});
    ncast_loaded_plan* loaded = nullptr;
    EXPECT_OK(ncast_plan_load(comm, &handle, dtype, op, &loaded));
    for (const size_t count : counts) {
      for (const bool in_place : {false, true}) {
        if (in_place ? plan.in_place == plan::InPlace::no : plan.in_place == plan::InPlace::yes) continue;
        const Setup setup{&plan, dtype, count, op, in_place};
        check_call(setup, loaded, rank);
        check_call(setup, loaded, rank);
      }
    }
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
  });
}

}  // namespace narrowcast::testing
