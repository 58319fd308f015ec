"""Held-out evaluation of policies: means with intervals, comparisons, kinds of failure, reports."""
