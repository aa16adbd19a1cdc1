// Descriptions of machines, on which plans are simulated.
#pragma once

#include <string>
#include <string_view>

#include "narrowcast/types.h"

namespace narrowcast::plan::simulate {

// Rates are in GB/s (10^9 bytes per second), times in microseconds. All GPUs are equal; rank r is GPU r % gpus_per_host
// of host r / gpus_per_host.
struct Machine {
  std::string name, source;  // for people; source: where the numbers come from
  int hosts = 1, gpus_per_host = 1;

  // The link of a GPU to the switch of its host, in each direction: the rate of payloads in slots, the rate of packets
  // (flags included), and the latency. Packets need no fence or flag.
  double link_gbps = 0, link_packets_gbps = 0, link_latency_us = 0, link_packets_latency_us = 0;
  // Response bytes in the other direction per byte sent.
  double link_response_share = 0, link_packets_response_share = 0;
  // The same for the network interface of a GPU. Used with several hosts only.
  double network_gbps = 0, network_latency_us = 0;

  uint32_t ctas = 1;            // of a call on a GPU; the groups of a rank share them
  uint32_t clustered_ctas = 0;  // at most, of long all-reduces that are launched in clusters; 0: none is
  double cta_move_gbps = 0;     // values that one CTA loads or stores
  double cta_reduce_gbps = 0;   // values of one source that one CTA adds
  double cta_encode_gbps = 0, cta_decode_gbps = 0;
  // The fractions of these two rates that plans with reductions reach: sums take registers, so fewer warps fit in a
  // CTA. The second one is for generated kernels that are not instances of hand-written ones, whose code is longer.
  double reducing_codec_share = 1, generated_codec_share = 1;
  // The fractions of link_gbps and of the rates of CTAs that CTAs on slow SMs reach in calls with encoded values, and
  // in raw calls, which take fewer instructions. They delay kernels whose warps have fixed blocks, unless these are
  // launched in clusters, which do not run on slow SMs.
  double slow_sm_share = 1, slow_sm_raw_share = 1;
  double slot_latency_us = 0;    // of a step that sends or receives values in slots: a block through shared memory
  double coded_latency_us = 0;   // of encoding or decoding: the time of one block
  double reduce_latency_us = 0;  // of a reduction of values in slots
  double step_us = 0;            // of every step: waiting for a flag, raising one
  double launch_us = 0;          // of a call, in a graph
  double slots_launch_us = 0;    // of a call with values in slots, in addition: its kernels are larger

  int gpus() const { return hosts * gpus_per_host; }
};

// Reads a description from JSON: an object with "narrowcast_machine": 1 and the members above. Errors: INVALID_ARGUMENT
// for JSON that is not a description, unknown keys, and numbers out of range.
ncast_status read_machine(std::string_view json, Machine* machine);

}  // namespace narrowcast::plan::simulate
