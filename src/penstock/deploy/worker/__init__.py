"""The worker's side of a job: what runs in Spark's Python processes."""
