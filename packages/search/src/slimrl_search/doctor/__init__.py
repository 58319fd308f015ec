"""The probes for `slimrl doctor`: the index and its embedder, the judge, and the container engine."""
