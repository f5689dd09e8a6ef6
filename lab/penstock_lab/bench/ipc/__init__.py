"""`penstock bench ipc`; `measure` has its `BENCH`."""
