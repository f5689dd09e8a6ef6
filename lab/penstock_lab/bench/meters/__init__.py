"""What metering costs, and how long a profile of a large log takes."""
