"""Looks at this machine and says what slimrl will use of it, and why: `slimrl doctor`.

A probe looks, and pure functions turn what was seen into findings. Nothing is downloaded or changed, but for the
kernels, which are compiled into the cache as a run would do it.
"""
