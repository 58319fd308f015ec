"""Samples from the policy: token ids in, token ids and log-probabilities out. Knows nothing of text."""
