"""The drop-in for NCCL: finds NCCL, runs commands with the drop-in, reads its reports."""
