"""Questions from a file. Rewards and tools are functions, servers or built-in names."""
