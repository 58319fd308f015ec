"""Tasksets of the package `verifiers`, in both of its interfaces."""
