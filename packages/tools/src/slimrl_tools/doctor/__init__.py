"""Probes of `slimrl doctor`. Each probe examines a subject; pure functions turn the results into findings."""
