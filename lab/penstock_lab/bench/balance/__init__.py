"""`penstock bench balance`; `measure` has its `BENCH`."""
