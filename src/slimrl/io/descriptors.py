"""Raises the limit of open files. Each connection is an open file, and shells allow only 1,024 per process."""

import resource
from contextlib import suppress


def allow_descriptors(num: int) -> int:
    """Raise the limit to `num` open files if it is lower. Return the number of files that this process may open."""
    most, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return num
    wanted = num if allowed == resource.RLIM_INFINITY else min(num, allowed)
    if most < wanted:
        with suppress(OSError, ValueError):  # macOS allows less than it claims
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
