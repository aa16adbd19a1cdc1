"""Plans in Python: their representation, and the formats of other libraries."""
