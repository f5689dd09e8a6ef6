"""The driver's side of a job: from a topology and a session to workers, and what became of them."""
