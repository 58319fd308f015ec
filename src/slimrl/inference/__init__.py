"""Samples token ids and their log-probabilities from the policy, given token ids. Knows nothing of text."""
