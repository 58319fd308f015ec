"""Search over Wikipedia pages: corpus, index and tools, the environment `wiki-search`, and servers for judges."""
