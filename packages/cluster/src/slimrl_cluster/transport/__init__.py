"""The files in a run's directory by which its parts communicate."""
