"""Steps that several published schedulers are made of; each scheduler itself is a file of `place`."""
