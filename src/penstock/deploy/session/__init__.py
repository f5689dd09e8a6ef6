"""Spark sessions: `local_session`, sessions that users bring, and whether a session is fit for a job."""
