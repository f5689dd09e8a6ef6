"""`penstock bench frames`; `measure` has its `BENCH`."""
