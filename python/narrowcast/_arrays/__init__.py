"""Arrays and streams of any framework, as pointers, counts and value types."""
