// Reductions with options that few calls need.
#ifndef NARROWCAST_REDUCTION_H_
#define NARROWCAST_REDUCTION_H_

#include "narrowcast/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Set struct_bytes to sizeof(ncast_reduction_options), and the members that are not needed to 0. Later versions append
// members.
typedef struct {
  size_t struct_bytes;
  // A number by which this rank multiplies its values before a sum, as with ncclRedOpCreatePreMulSum. Either all ranks
  // have one or none; the numbers may differ. The values are multiplied in fp32 (float64: in fp64) and rounded to their
  // type before they are encoded or sent, so all ways to run the call give the same bits. NULL: none.
  const double* factor;
  // The same as one value of type dtype, which is read when the call runs. CUDA: in memory that the GPU can read. NULL:
  // none.
  const void* device_factor;
  // Of an all_reduce: the codec of the results that ranks send each other, if it is another one than that of the
  // contributions. Two codecs combine if both quantise groups of values (docs/format/grouped.md), and each of these
  // combines with RAW. If the library sends contributions raw because that is faster, it sends results raw, too. NULL:
  // the same codec.
  const ncast_codec* result_codec;
} ncast_reduction_options;

// As ncast_reduce, ncast_reduce_scatter and ncast_all_reduce.
//   operation: NCAST_OP_REDUCE, NCAST_OP_REDUCE_SCATTER or NCAST_OP_ALL_REDUCE
//   root: ignored if the operation has none
//   options: read before the function returns; NULL: none
// Errors: also INVALID_ARGUMENT if the codecs do not combine, and if there is a factor, but op is not NCAST_SUM or the
// values are integers.
//
// CUDA: sums with a factor run by blocks, also where others run by packets.
NCAST_API ncast_status ncast_run_reduction(ncast_operation operation, const void* send, void* recv, uint64_t count,
                                           ncast_dtype dtype, ncast_redop op, int root, ncast_codec codec,
                                           const ncast_reduction_options* options, ncast_comm* comm,
                                           ncast_stream stream);

// As ncast_call_error_bound, for an all_reduce whose results have another codec than its contributions.
NCAST_API double ncast_all_reduce_error_bound(ncast_dtype dtype, ncast_redop op, ncast_codec codec,
                                              ncast_codec result_codec, int ranks, const double* largest);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_REDUCTION_H_
