"""Whether the CPU of a job is w_v + w_e, whatever its plan."""
