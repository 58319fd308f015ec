"""This package runs the sandbox's server, in a container or here, and audits a running one."""
