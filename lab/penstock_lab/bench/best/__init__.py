"""`penstock bench best`; `measure` has its `BENCH`."""
