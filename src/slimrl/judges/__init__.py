"""Defines two judges of answers: one compares words, the other asks a language model."""
