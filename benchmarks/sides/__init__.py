"""Processes of one side of a comparison each, started by the scripts in `speed` and `checks`."""
