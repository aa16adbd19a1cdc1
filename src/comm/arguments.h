// Checks arguments before a call starts. Messages name the function, the argument and the value.
#pragma once

#include <optional>
#include <span>

#include "executor/call.h"

namespace narrowcast::comm {

// Checks the codec of a call. One that is not exact has to be for floats and, in reductions, for sums and averages: the
// product, minimum or maximum of inexact values has no useful bound. function: that of the message.
ncast_status check_codec(const char* function, operation::Operation operation, ncast_dtype dtype, ncast_redop op,
                         ncast_codec codec);

// Checks that an all-reduce can encode its results with another codec than its contributions.
ncast_status check_result_codec(const char* function, operation::Operation operation, ncast_dtype dtype, ncast_redop op,
                                ncast_codec codec, ncast_codec result_codec);

// Whether GPUs have these codecs.
ncast_status check_on_gpu(const char* function, ncast_codec codec, std::optional<ncast_codec> result_codec);

// The codec of the results in its canonical form; nullopt if it is that of the contributions.
std::optional<ncast_codec> other_codec(ncast_codec codec, std::optional<ncast_codec> result_codec);

// Checks all arguments of a call except its communicator.
ncast_status check_arguments(const executor::Call& call);
// The same for a call that runs a plan. overlap: whether it can be in place, which some plans of all_to_all are.
ncast_status check_arguments(const executor::Call& call, operation::Overlap overlap);

// Whether send and recv of a call, whose arguments have been checked, are the same memory.
bool is_in_place(const executor::Call& call);

// Checks that sends from a rank to itself match their receives: in order, with the same count, dtype and codec. Errors:
// INVALID_ARGUMENT, MISMATCH.
ncast_status check_sends_to_self(std::span<const executor::Call> calls);

// For functions about how calls run: a communicator of two levels runs each as several calls of others. Error:
// UNSUPPORTED.
ncast_status check_one_level(const char* function, const ncast_comm& comm);

// Fills *config with the defaults and the caller's settings. `given` may be NULL, and may be of an older or newer
// version.
ncast_status read_config(const ncast_comm_config* given, ncast_comm_config* config);
// Checks everything that can be checked before a rank waits for other ranks.
ncast_status check_config(int ranks, int rank, const ncast_comm_config& config);

}  // namespace narrowcast::comm
