"""The metric log: written while a job runs, added up to profiles afterwards."""
