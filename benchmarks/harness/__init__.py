"""Modules that the scripts share: measuring, runs, seeds, the work of a comparison, pictures."""
