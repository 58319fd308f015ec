"""The probes of `slimrl doctor`: each examines a subject, and pure functions turn the results into findings."""
