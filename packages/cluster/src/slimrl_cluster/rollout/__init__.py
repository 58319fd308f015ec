"""Worker processes of environments on other machines."""
