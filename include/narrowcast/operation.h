// The operations of a communicator and their properties. operations.def has a row for each.
#ifndef NARROWCAST_OPERATION_H_
#define NARROWCAST_OPERATION_H_

#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// NCAST_OP_ALL_REDUCE and so on.
typedef enum {
#define NCAST_OPERATION(number, SYMBOL, ...) NCAST_OP_##SYMBOL = number,
#include "narrowcast/operations.def"
} ncast_operation;

// The number of operations in this header. A newer library may have more: ncast_operation_count().
enum {
  NCAST_OPERATIONS = 0
#define NCAST_OPERATION(...) +1  // NOLINT(bugprone-macro-parentheses): a term of the sum
#include "narrowcast/operations.def"
};

// The content of a buffer of a call.
typedef enum {
  NCAST_BUFFER_NONE = 0,         // the operation has no such buffer
  NCAST_BUFFER_PIECE = 1,        // count values
  NCAST_BUFFER_ROOT_PIECE = 2,   // count values at the root; ignored on other ranks
  NCAST_BUFFER_PIECES = 3,       // ranks * count values; piece r goes to rank r, or comes from it
  NCAST_BUFFER_ROOT_PIECES = 4,  // ranks * count values at the root; ignored on other ranks
  NCAST_BUFFER_LISTED = 5        // the call gives a count and an offset for each rank
} ncast_operation_buffer;

// Set struct_bytes to sizeof(ncast_operation_info) before the call. Later versions append members. Strings are
// constant.
typedef struct {
  size_t struct_bytes;
  ncast_operation operation;
  const char* name;            // "all_reduce"
  const char* function;        // "ncast_all_reduce"
  const char* nccl_functions;  // the corresponding functions of NCCL, separated by spaces; "" if there are none
  int reduces;                 // 1: values are combined; 0: they are moved
  int has_root;                // 1: the call names a root
  int has_peer;                // 1: the call names one peer
  int in_place;                // 1: may work in place
  int packets;                 // 1: the CUDA backend can run short calls by packets
  ncast_operation_buffer send, recv;
} ncast_operation_info;

// The number of operations of this library. They are numbered from 0.
NCAST_API int ncast_operation_count(void);

// Errors: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_operation_describe(ncast_operation operation, ncast_operation_info* info);

// Bus bandwidth / algorithm bandwidth as defined by nccl-tests: the share of the data that the busiest link of an ideal
// algorithm carries. 0 if operation is not an operation or ranks is below 1.
NCAST_API double ncast_operation_bus_factor(ncast_operation operation, int ranks);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_OPERATION_H_
