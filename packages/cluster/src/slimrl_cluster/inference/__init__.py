"""Clients of sampling servers: a client of one server, and a client of all samplers of a run."""
