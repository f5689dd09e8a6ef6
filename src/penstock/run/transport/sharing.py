"""Sharing: two workers of one machine exchange their inboxes, as agreement.py decides, without blocking.

The TCP connection carries one word each way. The local connection carries the inboxes and lives on in the ring's
channel, where larger rings come over it and its end says that the peer has died. An inbox that was offered does not
grow until the newcomer has a channel, or the newcomer would not hear of the next ring
(`test_an_inbox_does_not_grow_between_an_offer_and_its_answer`).
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

from penstock._core import NoSharedMemory, RingFault, RingRefused
from penstock.run.transport.agreement import Agreement, Outcome
from penstock.run.transport.handshake import Handshake
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.introduction import Introduction, hear, say
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.segment import local_address, require_own_user

Tell = Callable[[str], None]  # told why there is no ring


class Sharing:
    """One pair's way to a ring; `settled` is told of the channel, or of None where both use the socket.

    `lost` is told where the peer has gone instead.
    """

    def __init__(
        self,
        loop: Loop,
        inbox: Inbox,
        peer: int,
        connection: socket.socket,
        settled: Callable[[int, socket.socket, RingChannel | None], None],
        lost: Callable[[PeerGone], None],
        tell: Tell,
    ) -> None:
        self._loop, self._inbox, self._peer = loop, inbox, peer
        self._connection, self._settled, self._lost, self._tell = connection, settled, lost, tell
        self._agreement = Agreement()
        self._call: Introduction | None = None
        self._local: socket.socket | None = None  # over which the inboxes change hands
        self._channel: RingChannel | None = None
        self._why = f"worker {peer} of this machine cannot share memory"  # unless a better reason is known
        loop.register(connection.fileno(), self._on_word)

    # -- the local connection ----------------------------------------------------------------------------------------

    def call(self, key: bytes, handshake: Handshake) -> None:
        """Call the peer at its local address."""
        try:
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        except OSError as error:
            self._obstacle(f"worker {self._peer} of this machine cannot be called: {error}")
            return
        self._call = Introduction(self._loop, local, handshake, self._reached, self._not_reached)
        self._call.call(local_address(key, self._peer))

    def _reached(self, call: Introduction) -> None:
        self._call = None
        try:
            require_own_user(call.connection)
            if call.handshake.peer != self._peer:
                msg = f"the process at worker {self._peer}'s local address is worker {call.handshake.peer}"
                raise RingRefused(msg)
        except (RingRefused, OSError) as error:
            call.connection.close()
            self._obstacle(f"worker {self._peer} of this machine cannot be trusted: {error}")
            return
        self.meet(call.connection)

    def _not_reached(self, _: Introduction, error: OSError) -> None:
        self._call = None
        why = f"worker {self._peer} of this machine cannot be reached at its local address: {error}"
        self._obstacle(why, broken=isinstance(error, ConnectionError))

    def expire(self, now: float) -> None:
        """Do without a ring where the local address has not answered in time."""
        if self._call is not None and self._call.handshake.deadline <= now:
            self._call.close()
            self._not_reached(self._call, TimeoutError("it has not answered in time"))

    def meet(self, local: socket.socket) -> None:
        """Exchange inboxes over a local connection whose other end has proved to be the peer."""
        if self._local is not None or self._agreement.mine:
            local.close()
            return
        self._local = local
        self._loop.register(local.fileno(), self._on_offer)
        try:
            self._inbox.offer_to(local)
        except OSError as error:
            self._cannot_share(error)

    def _on_offer(self, _: int) -> None:
        if self._local is None:
            return
        try:
            channel = self._inbox.connect(self._local, self._peer)
        except BlockingIOError:
            return
        except (RingRefused, RingFault, NoSharedMemory, OSError) as error:
            self._cannot_share(error)
            return
        self._leave_local()
        self._channel = channel
        self._conclude(shared=True)

    def _cannot_share(self, error: Exception) -> None:
        if (local := self._leave_local()) is not None:
            local.close()
        broken = isinstance(error, ConnectionError)
        self._obstacle(f"worker {self._peer} of this machine and this one cannot share memory: {error}", broken=broken)

    def _leave_local(self) -> socket.socket | None:
        local, self._local = self._local, None
        if local is not None:
            self._loop.unregister(local.fileno())
            self._inbox.offer_is_over()
        return local

    # -- what both ends say ------------------------------------------------------------------------------------------

    def refuse(self, why: str) -> None:
        """There is no ring on our part."""
        if not self._agreement.mine:
            self._obstacle(why)

    def _obstacle(self, why: str, *, broken: bool = False) -> None:
        self._why = why  # told where sockets are used for it; the peer may have died instead
        self._conclude(shared=False, broken=broken)

    def _conclude(self, *, shared: bool, broken: bool = False) -> None:
        self._say(self._agreement.conclude(shared=shared, broken=broken))

    def _on_word(self, _: int) -> None:
        try:
            word = hear(self._connection, 1)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"was lost while both connected: {error}")
            return
        self._loop.modify(self._connection.fileno(), select.EPOLLRDHUP)  # what follows is for the socket's channel
        self._say(self._agreement.hear(word))

    def _say(self, word: bytes) -> None:
        if word:
            try:
                say(self._connection, word)
            except OSError as error:
                self._lose(f"was lost while both connected: {error}")
                return
        self._settle()

    def _settle(self) -> None:
        match self._agreement.outcome:
            case Outcome.RING:
                channel, self._channel = self._channel, None
                self._end().close()
                self._settled(self._peer, self._connection, channel)
            case Outcome.SOCKET:
                self._tell(self._why)
                self._settled(self._peer, self._end(), None)
            case Outcome.LOST:
                self._lose("agreed to share memory and has gone")

    def _end(self) -> socket.socket:
        """Leave everything but the TCP connection, which is handed back."""
        if (local := self._leave_local()) is not None:
            local.close()
        if self._call is not None:
            self._call.close()
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.close()
        self._loop.unregister(self._connection.fileno())
        return self._connection

    def _lose(self, what: str) -> None:
        self.close()
        self._lost(PeerGone(f"worker {self._peer} {what}", self._peer))

    def close(self) -> None:
        """Give everything up."""
        self._end().close()
