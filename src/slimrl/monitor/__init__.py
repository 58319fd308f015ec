"""Shows and records a run: the registry of metrics and their sinks, the console, plots, rollouts and the summary.

The package does not depend on models, environments or losses. Plots and readers need only files. So a run can be
inspected during training, later, or on another machine.
"""
