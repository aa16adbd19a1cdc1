"""File formats, and atomic creation of files."""
