"""Defines tools, and the formats in which a policy calls tools."""
