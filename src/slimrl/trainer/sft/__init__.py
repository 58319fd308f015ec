"""The supervised loop."""
