"""Contains the clients of sampling servers: one for a single server, and one for all samplers of a run."""
