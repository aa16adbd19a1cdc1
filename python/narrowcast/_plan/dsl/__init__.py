"""The language in which users write plans: statements are recorded, ordered, and written as a plan."""
