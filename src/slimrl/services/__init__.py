"""This package installs, starts, watches and stops programs: the parts of a run, and what serves a judge or sandbox."""
