"""The commands, one file for each, and the parts of an `rl` run that are processes of their own."""
