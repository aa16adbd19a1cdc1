// Defines ncclX and pncclX for every export: a jump through a slot. A slot first points to the resolver, then to the
// drop-in's own function or to that of the real NCCL. A jump preserves all arguments, whatever their types.
#define SLOT(name) narrowcast_nccl_slot_##name
#define FIRST(name) narrowcast_nccl_first_##name

  .text
#if defined(__aarch64__)
#include "nccl/entry/trampolines_aarch64.asm"
#else
#include "nccl/entry/trampolines_x86_64.asm"
#endif

#define TRAMPOLINE(name)                         \
  JUMP_THROUGH(SLOT(name));                      \
  .size nccl##name, . - nccl##name;              \
  FIRST(name): RESOLVE(SLOT(name))

#define NCCL_INTERNAL(name, returns)                     \
  .globl nccl##name; .type nccl##name, @function;        \
  nccl##name: TRAMPOLINE(name)

#define NCCL_FUNCTION(name, returns)                     \
  .weak nccl##name; .type nccl##name, @function;         \
  .globl pnccl##name; .type pnccl##name, @function;      \
  nccl##name: pnccl##name: TRAMPOLINE(name);             \
  .size pnccl##name, . - pnccl##name

#include "nccl/abi/exports.inc"

#undef NCCL_FUNCTION
#undef NCCL_INTERNAL
#define NCCL_INTERNAL(name, returns) SLOT(name): .quad FIRST(name)
#define NCCL_FUNCTION(name, returns) NCCL_INTERNAL(name, returns)

  .section .data.rel.local, "aw"
  .balign 8
  .globl narrowcast_nccl_slots
  .hidden narrowcast_nccl_slots
narrowcast_nccl_slots:
#include "nccl/abi/exports.inc"

  .section .note.GNU-stack, "", @progbits
