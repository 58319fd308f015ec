"""Monitors of a run's health: they compute metrics from the rollouts, and raise an alarm if a metric is not healthy.

In the orchestrator, `measure` computes the metrics from the rollouts of a step. In the trainer's process, `Health`
checks all logged metrics and raises the alarms. A resumed run restores the state of `Health` from the metrics file.
"""
