"""What a worker decides, without waiting, sending or asking a clock: events in, one instruction at a time out."""
