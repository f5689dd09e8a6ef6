"""How bytes move between workers. `protocol` says what a channel is; each transport is a file."""
