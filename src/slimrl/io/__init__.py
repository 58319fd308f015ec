"""Everything that leaves the process: addresses, HTTP, files, caches and chat servers. Imports no PyTorch."""
