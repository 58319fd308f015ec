"""Implements `slimrl doctor`: examines this machine, and reports the parts that slimrl will use, with reasons.

A probe examines, and pure functions turn its results into findings. Nothing is downloaded or changed, except that
kernels are compiled into the cache, as by a run.
"""
