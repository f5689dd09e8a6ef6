"""One file per published figure or table; ours beside theirs."""
