"""The policy: found by name, loaded once, spoken to in token ids. `load.load_policy` is the way in."""
