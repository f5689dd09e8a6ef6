"""The API in which users write dataflows, in the manner of PySpark; it builds a frozen Dataflow and runs nothing."""
