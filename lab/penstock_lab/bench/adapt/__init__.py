"""`penstock bench adapt`; `measure` has its `BENCH`."""
