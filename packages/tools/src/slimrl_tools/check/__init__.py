"""Tries an environment, and says what is wrong with it: `slimrl check`."""
