"""What a stream costs on this machine at each distance, measured with real workers in real processes."""
