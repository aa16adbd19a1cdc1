"""The drop-in for NCCL: where NCCL is, how a command gets the drop-in, what the drop-in reports."""
