"""This package shows a run: the registry of metrics and their sinks, the console, plots, rollouts and the summary.

It knows nothing of models, environments or losses. Plots and readers work from files alone, so that a run can be
inspected while it is going, after it has ended, or on another machine.
"""
