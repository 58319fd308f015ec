"""The scripts behind every figure of the documentation. Nothing is imported here: sides run in other environments."""
