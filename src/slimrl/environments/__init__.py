"""Tasks and their environments."""
