"""Encoded tensors of torch in host memory, behind `narrowcast.torch` and `narrowcast.integrations`."""
