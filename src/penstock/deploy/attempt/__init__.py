"""Attempts at a job: a Spark action each, the epochs that carry a job from one to the next, what follows a failure."""
