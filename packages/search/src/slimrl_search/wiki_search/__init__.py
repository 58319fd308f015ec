"""The environment `wiki-search`: answer questions with tools that search an encyclopedia."""
