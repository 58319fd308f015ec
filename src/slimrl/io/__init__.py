"""Everything that leaves the process: addresses, HTTP, files, caches and chat servers. Does not import PyTorch."""
