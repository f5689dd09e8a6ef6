"""Steps that fusion methods are made of; each method itself is a file of `fuse`."""
