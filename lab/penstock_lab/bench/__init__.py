"""Measurements that `penstock bench` prints: nothing here is imported by the rest of the package."""
