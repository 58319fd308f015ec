"""Monitors of a run's health: they compute metrics from the rollouts, and raise an alarm if a metric is not healthy.

`measure` computes the metrics from the rollouts of a step, in the orchestrator. `Health` watches all metrics where the
trainer logs them, and raises the alarms. Its state follows from the metrics file alone, so a resumed run continues
unchanged.
"""
