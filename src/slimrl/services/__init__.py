"""This package installs, starts, watches and stops the programs that serve a judge or a sandbox."""
