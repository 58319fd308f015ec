"""Judges of answers: by words, or by a model; and how far they agree with labels."""
