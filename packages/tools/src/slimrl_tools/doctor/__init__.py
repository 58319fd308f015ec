"""Looks at this machine and says what slimrl will use of it, and why: `slimrl doctor`. A file for each subject.

Each has a `probe`, which looks, and pure functions from what was seen to a finding. Nothing is downloaded or changed,
but for the kernels, which are compiled into the cache as a run would do it.
"""
