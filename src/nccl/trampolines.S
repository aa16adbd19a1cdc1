// ncclX and pncclX of every export: a jump through a slot. A slot leads to the resolver first, and then to the drop-in's
// own function or to the real NCCL's; a jump keeps all arguments, whatever they are. x86-64, System V.
#define SLOT(name) narrowcast_nccl_slot_##name
#define FIRST(name) narrowcast_nccl_first_##name

#define TRAMPOLINE(name)                         \
  endbr64;                                       \
  jmpq *SLOT(name)(%rip);                        \
  .size nccl##name, . - nccl##name;              \
  FIRST(name): endbr64;                          \
  leaq SLOT(name)(%rip), %r11;                   \
  jmp resolve_and_go

#define NCCL_INTERNAL(name, returns)                     \
  .globl nccl##name; .type nccl##name, @function;        \
  nccl##name: TRAMPOLINE(name)

#define NCCL_FUNCTION(name, returns)                     \
  .weak nccl##name; .type nccl##name, @function;         \
  .globl pnccl##name; .type pnccl##name, @function;      \
  nccl##name: pnccl##name: TRAMPOLINE(name);             \
  .size pnccl##name, . - pnccl##name

  .text
// A function's first call: %r11 has its slot. Keeps the registers of arguments.
resolve_and_go:
  pushq %rbp
  movq %rsp, %rbp
  andq $-16, %rsp
  subq $192, %rsp
  movq %rdi, (%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movaps %xmm0, 64(%rsp)
  movaps %xmm1, 80(%rsp)
  movaps %xmm2, 96(%rsp)
  movaps %xmm3, 112(%rsp)
  movaps %xmm4, 128(%rsp)
  movaps %xmm5, 144(%rsp)
  movaps %xmm6, 160(%rsp)
  movaps %xmm7, 176(%rsp)
  movq %r11, %rdi
  call narrowcast_nccl_resolve
  movq %rax, %r11
  movaps 176(%rsp), %xmm7
  movaps 160(%rsp), %xmm6
  movaps 144(%rsp), %xmm5
  movaps 128(%rsp), %xmm4
  movaps 112(%rsp), %xmm3
  movaps 96(%rsp), %xmm2
  movaps 80(%rsp), %xmm1
  movaps 64(%rsp), %xmm0
  movq 48(%rsp), %rax
  movq 40(%rsp), %r9
  movq 32(%rsp), %r8
  movq 24(%rsp), %rcx
  movq 16(%rsp), %rdx
  movq 8(%rsp), %rsi
  movq (%rsp), %rdi
  leave
  jmp *%r11

#include "nccl/exports.inc"

#undef NCCL_FUNCTION
#undef NCCL_INTERNAL
#define NCCL_INTERNAL(name, returns) SLOT(name): .quad FIRST(name)
#define NCCL_FUNCTION(name, returns) NCCL_INTERNAL(name, returns)

  .section .data.rel.local, "aw"
  .balign 8
  .globl narrowcast_nccl_slots
  .hidden narrowcast_nccl_slots
narrowcast_nccl_slots:
#include "nccl/exports.inc"

  .section .note.GNU-stack, "", @progbits
