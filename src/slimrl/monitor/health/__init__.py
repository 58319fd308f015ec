"""Monitors of a run's health: numbers of its rollouts and metrics, and alarms where these are not healthy.

`measure` turns the rollouts of a step into metrics, beside the orchestrator. `Health` watches the metrics, beside the
trainer's log, and raises alarms. So both know only what a file of metrics keeps, and a resumed run goes on as it was.
"""
