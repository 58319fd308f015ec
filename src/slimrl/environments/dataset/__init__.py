"""The environment `dataset`: questions from a file, with functions, servers or built-in names as rewards and tools."""
