"""`penstock bench place`; `measure` has its `BENCH`."""
