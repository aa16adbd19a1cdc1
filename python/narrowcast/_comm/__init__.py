"""The parts of a communicator: calls, options, groups, registered memory."""
