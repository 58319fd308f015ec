"""Reads the configuration from flags, files and environment variables, checks it, and writes it as text."""
