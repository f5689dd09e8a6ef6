"""The data model: topology, cluster, constraints, profile, plan and its certificate, and the files that hold them."""
