"""`penstock bench checkpoint`; `measure` has its `BENCH`."""
