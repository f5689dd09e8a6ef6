"""A running job that looks at itself and moves: the shell around `penstock.adapt`."""
