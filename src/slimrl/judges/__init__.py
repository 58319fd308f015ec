"""Judges of answers, by words or by a language model."""
