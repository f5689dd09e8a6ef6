"""`penstock bench state`; `measure` has its `BENCH`."""
