"""The laboratory: benchmarks, published figures, simulations and oracles for Penstock. No job needs it."""
