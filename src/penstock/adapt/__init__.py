"""When a running job moves to a better plan, and which tasks it moves: pure, with time and measurements given."""
