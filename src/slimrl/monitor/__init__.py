"""This package shows a run: the registry of metrics and their sinks, the console, plots, rollouts and the summary.

It does not depend on models, environments or losses. Plots and readers need only files, so a run can be inspected while
it runs, later, or on another machine.
"""
