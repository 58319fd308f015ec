"""The policy: found by name, loaded once, used by token ids. Start at `load.load_policy`."""
