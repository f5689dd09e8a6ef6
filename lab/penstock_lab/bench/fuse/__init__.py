"""`penstock bench fuse`; `measure` has its `BENCH`."""
