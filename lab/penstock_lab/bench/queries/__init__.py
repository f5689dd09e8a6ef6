"""`penstock bench queries`; `measure` has its `BENCH`."""
