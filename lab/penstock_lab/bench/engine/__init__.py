"""`penstock bench engine`; `measure` has its `BENCH`."""
