"""Questions from a file, with rewards and tools that are functions, servers or names."""
