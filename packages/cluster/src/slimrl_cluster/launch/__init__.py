"""Starts, watches and scales runs of several processes, reports their status, and sends weights between the
processes."""
