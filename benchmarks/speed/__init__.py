"""Scripts that time something, mostly against others that do the same work."""
