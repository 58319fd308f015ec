"""Contains the commands `launch`, `status` and `scale`, and one command for each part of an `rl` run."""
