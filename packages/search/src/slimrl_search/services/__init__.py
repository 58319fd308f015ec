"""This package installs, starts, watches and stops programs that serve a judge, or the sandbox with its tools."""
