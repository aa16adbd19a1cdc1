// AArch64, AAPCS64. x16 may be clobbered between a call and its target, and a jump through it may land on a target.
// hint 34 is `bti c` in a form that every assembler accepts.

#define JUMP_THROUGH(slot) hint 34; adrp x16, slot; ldr x16, [x16, :lo12:slot]; br x16
#define RESOLVE(slot) hint 34; adrp x16, slot; add x16, x16, :lo12:slot; b resolve_and_go

// The first call of a function, with its slot in x16. Preserves the argument registers, and x8, the address of a large
// result.
resolve_and_go:
  stp x29, x30, [sp, #-224]!
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x16
  bl narrowcast_nccl_resolve
  mov x16, x0
  ldp q6, q7, [sp, #192]
  ldp q4, q5, [sp, #160]
  ldp q2, q3, [sp, #128]
  ldp q0, q1, [sp, #96]
  ldr x8, [sp, #80]
  ldp x6, x7, [sp, #64]
  ldp x4, x5, [sp, #48]
  ldp x2, x3, [sp, #32]
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #224
  br x16
