"""C++ kernels for the slow operations on a CPU. They are compiled for the present CPU on first use."""
