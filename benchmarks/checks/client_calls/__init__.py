"""Programs for the environments of other clients, one for each. They import nothing of this project."""
