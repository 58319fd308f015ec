"""Tools, and the formats in which a policy calls them."""
