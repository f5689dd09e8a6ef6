"""(Topology, Profile, Cluster) -> Plan: pure, seeded, no clock but a deadline."""
