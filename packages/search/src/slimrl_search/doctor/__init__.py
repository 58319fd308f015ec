"""The probe for `slimrl doctor`: the index and its embedder."""
