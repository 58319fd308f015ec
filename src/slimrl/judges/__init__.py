"""Judges of answers, by words or by a language model, and how far they agree with labels."""
