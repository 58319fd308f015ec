"""The probes for `slimrl doctor`: the index and its embedder, and the judge."""
