"""Judges of answers: one compares words, another asks a language model."""
