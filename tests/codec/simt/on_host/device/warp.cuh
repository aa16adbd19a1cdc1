// Replaced by the functions for execution on the host.
#pragma once

#include "executor/cuda/generated/simt/cuda.h"
