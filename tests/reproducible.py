"""Which metrics a resumed run must repeat exactly."""

from slimrl.monitor.metrics import lookup

NOT_REPRODUCIBLE = frozenset({"time", "perf", "memory", "async"})  # groups that depend on the machine and its load
# Prefixes of metrics that depend on a judge's server: its speed, and the contents of its cache.
OF_A_SERVER = ("env/judge_", "held_out/judge_")


def is_reproducible(name: str) -> bool:
    """Return True if a resumed run must log exactly the same values of this metric, given the same machine and number
    of threads."""
    return lookup(name).group not in NOT_REPRODUCIBLE and not name.startswith(OF_A_SERVER)
