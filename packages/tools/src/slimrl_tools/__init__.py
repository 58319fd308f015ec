"""Tools for runs: plans, model cards, checks of the machine, translation of prime-rl's settings, and recorded
curves."""
