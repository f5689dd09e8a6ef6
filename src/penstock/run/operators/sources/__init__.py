"""Sources: rows made, read from files, or handed in by Spark."""
