"""The configuration: its sections, and how they are filled from flags, files and the environment. Imports no torch."""
