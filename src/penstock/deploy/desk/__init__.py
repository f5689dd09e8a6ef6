"""The desk of a running job: where other processes of its user ask after it and tell it what to do."""
