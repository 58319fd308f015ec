"""Plugs slimrl's environments into frameworks of others. Imports none of these: what they hand over is enough."""
