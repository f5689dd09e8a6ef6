"""Inside one worker: the pure machine, the thin loop, tasks, routing and channels. Knows nothing of Spark."""
