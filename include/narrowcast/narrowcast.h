// All of Narrowcast's C API.
#ifndef NARROWCAST_NARROWCAST_H_
#define NARROWCAST_NARROWCAST_H_

#include "narrowcast/channel.h"
#include "narrowcast/codec.h"
#include "narrowcast/comm.h"
#include "narrowcast/cuda.h"
#include "narrowcast/explain.h"
#include "narrowcast/operation.h"
#include "narrowcast/types.h"

#endif  // NARROWCAST_NARROWCAST_H_
