"""The files by which the parts of a run meet in its directory."""
