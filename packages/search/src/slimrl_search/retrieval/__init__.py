"""This package stores the pages of an encyclopedia and finds them by title: corpora, indexes and their sources."""
