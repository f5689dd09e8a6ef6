"""Running jobs that get more or fewer tasks and workers: what may change, and the plan for what is to come."""
