"""From flags, files and variables to a checked configuration, and back to text."""
