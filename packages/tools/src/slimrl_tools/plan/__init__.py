"""Foretells what a run takes, before anything is loaded: memory by part, disk, time, and what to change."""
