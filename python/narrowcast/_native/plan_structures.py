"""ctypes declarations of the structures in plan.h, and their constants."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

PLACEMENTS = {None: 0, False: 1, True: 2}  # by whether a call is in place


class PlanCallC(Structure):
    """ncast_plan_call."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operation", c_int),
        ("count", c_uint64),
        ("dtype", c_int),
        ("op", c_int),
        ("root", c_int),
        ("codec", c_uint64),
        ("ranks", c_int),
        ("placement", c_int),
        ("result_codec", POINTER(c_uint64)),
    ]


# ncast_plan_selector: context, call, plans, their number.
PLAN_SELECTOR = CFUNCTYPE(c_int, c_void_p, POINTER(PlanCallC), POINTER(c_char_p), c_int)


class PlanInfoC(Structure):
    """ncast_plan_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("operation", c_int),
        ("root", c_int),
        ("ranks", c_int),
        ("chunks", c_uint32),
        ("groups", c_uint32),
        ("steps", c_uint64),
        ("cost_name", c_char_p),
    ]


class PlanUseC(Structure):
    """ncast_plan_use."""

    _fields_ = [("struct_bytes", c_size_t), ("always", c_int), ("min_bytes", c_uint64), ("max_bytes", c_uint64)]


class PlanBuilderC(Structure):
    """ncast_plan_builder."""

    _fields_ = [("struct_bytes", c_size_t), ("name", c_char_p), ("text", c_char_p), ("operations", c_uint64)]


class PlanRequestC(Structure):
    """ncast_plan_request."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operation", c_int),
        ("ranks", c_int),
        ("root", c_int),
        ("codec", c_uint64),
        ("depth", c_uint32),
        ("ranks_per_node", c_int),
    ]


class PlanVerifyOptionsC(Structure):
    """ncast_plan_verify_options."""

    _fields_ = [("struct_bytes", c_size_t), ("depth", c_uint32)]


class PlanSimulationC(Structure):
    """ncast_plan_simulation."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("piece_bytes", c_uint64),
        ("ratio", c_double),
        ("max_groups", c_uint32),
        ("timeline", c_int),
        ("max_instances", c_uint32),
        ("any_executor", c_int),
    ]
