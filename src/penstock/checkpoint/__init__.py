"""Epochs outside the workers: the store of files and manifests, the coordinator, and when a job is tried again."""
