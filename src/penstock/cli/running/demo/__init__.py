"""`penstock demo`: a job that gets a better plan while it runs, for people to watch."""
