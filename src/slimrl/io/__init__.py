"""The input and output of a process: addresses, HTTP, files, caches and chat servers. Does not import PyTorch."""
