"""Tasksets of the package `verifiers`."""
