"""The engine of one worker: the steps that carry out what the machine decides, the tasks, and what is counted."""
