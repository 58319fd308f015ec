"""All that leaves the process: addresses, HTTP, files, caches and chat servers. No PyTorch."""
