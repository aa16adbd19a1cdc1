// The only kernel in builds with NARROWCAST_ONLY_CHECK_KERNELS for which ptxas generates code. Included before every
// source; a template, because several sources define it.
#pragma once

template <int>
__global__ void nothing() {}
template __global__ void nothing<0>();
