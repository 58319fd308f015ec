"""Implementation of `slimrl check`: tries an environment and reports its faults."""
