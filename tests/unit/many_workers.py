"""So many workers of this machine meet, each a process of its own: `many_workers.py COUNT TRANSPORT`; prints the time.

The processes are forked from this one, which has imported everything and opened all doors before the first begins.
"""

from __future__ import annotations

import os
import sys
import time

from links_kit import Mesh

from penstock.run.transport import links as links_room
from penstock.run.transport.links import Transport
from penstock.run.transport.wire import Kind

PATIENCE_SECONDS = 300.0  # whether they meet is what counts, not on how busy a machine


def work(made: Mesh, me: int, begin: int, transport: Transport) -> int:
    """One worker: it meets all others, hears the end of each one's edge, and parts; how many it met."""
    for other, listener in enumerate(made.listeners):
        if other != me:
            listener.close()
    os.read(begin, 1)
    links = made.links_of(me, range(made.count), transport)
    links.open(made.listeners[me], made.places, made.key)
    met_at = time.monotonic()
    others = [w for w in range(made.count) if w != me]
    for other in others:
        links.send_mark(Kind.END, made.edge(me, other))
    ended = 0
    while ended < len(others):
        ended += len(links.wait(1.0)[0])
    links.say_goodbye()
    descriptors = len(os.listdir("/proc/self/fd"))
    transports = {transport for transport, _ in links.statistics().values()}
    sys.stdout.write(
        f"{me} met {len(links.statistics())} over {' '.join(transports)} at {met_at}, {descriptors} descriptors\n"
    )
    sys.stdout.flush()
    links.close()
    return 0 if len(others) == len(links.statistics()) else 1


def main(count: int, kind: str) -> int:
    """Fork the workers, let them begin at the same moment, and wait for all; 0 when all have met all."""
    made, transport = Mesh(count, members=range(0)), Transport(kind, 256 * 1024)
    for links in made.links:
        links.close()
    links_room.CONNECT_SECONDS = PATIENCE_SECONDS
    begin, go = os.pipe()
    children = []
    for me in range(count):
        child = os.fork()
        if not child:
            os.close(go)
            os._exit(_guarded(made, me, begin, transport))
        children.append(child)
    for listener in made.listeners:
        listener.close()
    began = time.monotonic()
    os.close(go)
    codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    sys.stdout.write(f"{count} workers began at {began}, ended at {time.monotonic()}, codes {codes}\n")
    return 0 if codes == {0} else 1


def _guarded(made: Mesh, me: int, begin: int, transport: Transport) -> int:
    try:
        return work(made, me, begin, transport)
    except BaseException as error:
        sys.stderr.write(f"worker {me}: {type(error).__name__}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
