"""Monitors of a run's health: numbers of its rollouts and metrics, and alarms if these are not healthy.

`measure` turns the rollouts of a step into metrics, beside the orchestrator. `Health` watches the metrics, beside the
trainer's log, and raises alarms. Both need only the data in a file of metrics, so a resumed run continues unchanged.
"""
