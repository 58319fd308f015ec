"""This package installs, starts, watches and stops servers: the server of a judge, and the sandbox's server with its
tools."""
