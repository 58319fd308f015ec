"""Answer questions with tools that search an encyclopedia."""
