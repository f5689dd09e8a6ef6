"""Nexmark: an online auction as a benchmark of streaming queries; synthetic events, and the queries in our API.

Events are in `events` and `tables`; the queries, each with its definition in Spark SQL beside its topology, in
`queries` and the modules that it lists.
"""
