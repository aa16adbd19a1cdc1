// The plans whose generated kernels the build compiles for nvcc and for simt/machine.h.
#pragma once

#include <stdexcept>
#include <vector>

#include "executor/cuda/generated/sample_plans.h"
#include "narrowcast/user_codec.h"
#include "plan/builders/builders.h"

namespace narrowcast::test {

struct Sample {
  const char* name;  // also in the names of the kernels, and in cmake/generated_samples.cmake
  Plan plan;
  ncast_dtype dtype;
  ncast_redop op;
  bool has_packets;
  bool is_compiled_by_nvcc = false, is_packet_sample = false;  // for generated_blocks.cu, generated_packets.cu
  bool by_steps = true;                                        // see Target
};

// An all-reduce with a bounded codec, whose result all ranks store as its payload decodes.
inline Plan bounded_all_reduce(const char* algorithm, ncast_codec codec = NCAST_CODEC_INT8) {
  plan::builders::Request request;
  request.ranks = 3;
  request.codec = codec;
  Plan plan;
  if (plan::builders::build(algorithm, request, &plan) != NCAST_OK) throw std::logic_error(ncast_last_error());
  return plan;
}

// The codec of examples/codec, as a user's.
inline ncast_codec example_codec() {
  static const ncast_codec registered = [] {
    ncast_codec codec = 0;
    if (ncast_codec_register(NARROWCAST_EXAMPLE_CODEC, nullptr) != NCAST_OK ||
        ncast_codec_parse("uniform:bits=12", &codec) != NCAST_OK)
      throw std::logic_error(ncast_last_error());
    return codec;
  }();
  return registered;
}

inline std::vector<Sample> samples() {
  return {
      {"two_shot", all_reduce_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM, false, true},
      {"one_shot", all_reduce_one_shot_plan(3, NCAST_CODEC_RAW), NCAST_FLOAT32, NCAST_SUM, true, false, true},
      {"all_gather", all_gather_plan(3, NCAST_CODEC_RAW), NCAST_INT8, NCAST_SUM, true},
      {"two_shot_pieces", all_reduce_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM, false, false, false,
       false},
      {"one_shot_pieces", all_reduce_one_shot_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM, false, false,
       false, false},
      {"gather_pieces", all_gather_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM, false, false, false, false},
      {"ring", ring_all_reduce_plan(3, NCAST_CODEC_WINDOW), NCAST_FLOAT32, NCAST_MAX, false},
      {"ring_raw", ring_all_reduce_plan(4, NCAST_CODEC_RAW), NCAST_INT32, NCAST_AVG, true},
      {"barrier", two_group_plan(2, NCAST_CODEC_RAW, true), NCAST_INT64, NCAST_SUM, false},
      {"after", two_group_plan(2, NCAST_CODEC_RAW, false), NCAST_INT32, NCAST_PROD, true},
      {"puts", put_all_gather_plan(2), NCAST_INT8, NCAST_SUM, false},
      {"packets_in_scratch", packets_all_reduce_plan(3, NCAST_CODEC_RAW), NCAST_INT32, NCAST_SUM, false},
      {"encoded_packets", packets_all_reduce_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM, false},
      {"relay", packets_relay_plan(NCAST_CODEC_WINDOW), NCAST_FLOAT32, NCAST_SUM, false},
      {"relay_raw", packets_relay_plan(NCAST_CODEC_RAW), NCAST_FLOAT32, NCAST_SUM, false},
      {"bounded_ring", bounded_all_reduce("ring"), NCAST_FLOAT32, NCAST_SUM, false},
      {"bounded_pairs", bounded_all_reduce("all_pairs"), NCAST_BFLOAT16, NCAST_SUM, false},
      {"bounded_pieces", bounded_all_reduce("all_pairs"), NCAST_FLOAT32, NCAST_SUM, false, false, false, false},
      {"user_ring", bounded_all_reduce("ring", example_codec()), NCAST_FLOAT32, NCAST_SUM, false},
      {"user_pieces", bounded_all_reduce("all_pairs", example_codec()), NCAST_BFLOAT16, NCAST_SUM, false, false, false,
       false},
      {"encoded_messages", all_reduce_one_shot_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM, false},
  };
}

}  // namespace narrowcast::test
