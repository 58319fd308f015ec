"""The input and output of a process: URLs, HTTP, files, caches and chat servers. This package never imports PyTorch."""
