"""Finds the policy's model by its name, loads it once, and runs it on token ids. Start at `load.load_policy`."""
