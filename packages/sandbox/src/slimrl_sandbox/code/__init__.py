"""The environment `code`: problems with tests, which a program of the policy must pass in the sandbox."""
