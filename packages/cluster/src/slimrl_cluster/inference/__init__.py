"""Clients of servers that sample: of one, and of all samplers of a run."""
