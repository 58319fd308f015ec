"""The sandbox's server in a container, and the audit of one that runs."""
