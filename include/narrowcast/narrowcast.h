// The whole C API.
//
// Stability of the ABI, which abi/libnarrowcast.abi describes in the source tree:
//   - Functions, types and enumerators may be added. Programs must expect enumerators that they do not know.
//   - A struct that starts with struct_bytes may gain members at its end. The library accepts the shorter struct of an
//     older program, and writes no more of it than struct_bytes says.
//   - Anything else changes only with the major version, the number in the file name libnarrowcast.so.N; before 1.0
//     also with the minor version.
//   - Device code (narrowcast/device.cuh) is compiled into programs and must match the library exactly: channel.h.
#ifndef NARROWCAST_NARROWCAST_H_
#define NARROWCAST_NARROWCAST_H_

#include "narrowcast/channel.h"
#include "narrowcast/codec.h"
#include "narrowcast/comm.h"
#include "narrowcast/cuda.h"
#include "narrowcast/explain.h"
#include "narrowcast/interrupt.h"
#include "narrowcast/network.h"
#include "narrowcast/operation.h"
#include "narrowcast/plan.h"
#include "narrowcast/reduction.h"
#include "narrowcast/store.h"
#include "narrowcast/store_cuda.h"
#include "narrowcast/text.h"
#include "narrowcast/types.h"
#include "narrowcast/user_codec.h"

#endif  // NARROWCAST_NARROWCAST_H_
