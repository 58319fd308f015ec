"""The supervised training loop and its data."""
