"""Word count in other engines. Each file is a script that runs in that engine's own environment and imports it alone."""
