"""The stateful operator: a user's class with keyed state and timers."""
