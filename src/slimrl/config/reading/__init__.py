"""Reading and writing of the configuration: from flags, files and variables to checked sections, and back to text."""
