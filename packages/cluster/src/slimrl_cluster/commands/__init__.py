"""The commands, one file for each, and the parts of an `rl` run that are separate processes."""
