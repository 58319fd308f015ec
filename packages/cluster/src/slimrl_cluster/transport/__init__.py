"""Defines the files in a run's directory through which its parts communicate."""
