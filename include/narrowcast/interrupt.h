// Ends waits early, for example when the user presses Ctrl-C.
#ifndef NARROWCAST_INTERRUPT_H_
#define NARROWCAST_INTERRUPT_H_

#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*ncast_interrupt_check)(void* context);

// Sets a function that says whether the calling thread should stop waiting; NULL removes it. Functions of the library
// that this thread calls, and that wait for other ranks or for streams, call check(context) on this thread about 10
// times a second. The check may call functions of the library, such as ncast_comm_abort; it is not called again
// meanwhile. If it returns a value other than 0, the function aborts the communicators that it waits for, as
// ncast_comm_abort does, and returns NCAST_ABORTED:
//   - The creation of a communicator fails on all ranks.
//   - The calls in flight of the communicator end. If they are on streams of the host backend, they may still use their
//     buffers until ncast_stream_destroy.
//   - A communicator or stream that is being destroyed is destroyed nevertheless.
// Waits of the CUDA runtime (cudaStreamSynchronize) do not end; those of the CUDA backend end when its kernels do.
NCAST_API void ncast_set_interrupt_check(ncast_interrupt_check check, void* context);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_INTERRUPT_H_
