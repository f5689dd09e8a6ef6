"""Word count in other engines: scripts that run in that engine's own environment and import it alone."""
