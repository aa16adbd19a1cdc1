"""The parts of the backend "narrowcast" of torch.distributed (`narrowcast.torch_backend`)."""
