"""What `narrowcast try` does: runs a command, finds its step in the record of its calls, and compares step times."""
