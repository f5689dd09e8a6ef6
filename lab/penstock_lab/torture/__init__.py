"""Real jobs under torture: processes killed, files damaged, clocks moved, and a checker that knows nothing of us.

A *line* is one way to torture (`lines.py`); a *trial* is one line under one seed. Trials run in processes of their own
(`play.py`), with real Spark sessions, workers, sockets and files. What a trial leaves in its sink is counted by
`checker.py`, a program of pyarrow alone. `runner.py` keeps a row for each trial; `page.py` makes RELIABILITY.md of
them.
"""
