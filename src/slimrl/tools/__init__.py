"""What a tool is, and the formats in which a policy calls one."""
