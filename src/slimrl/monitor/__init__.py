"""Seeing a run: the registry of metrics, where they go, the console, plots, recorded rollouts, the closing table.

Knows nothing of models, environments or losses. Plots and readers work from files alone, so that a run can be looked at
while it is going, after it ended, or on another machine.
"""
