"""The network between one gateway and a PostgreSQL server, which can be disturbed."""

import contextlib
import queue
import selectors
import socket
import threading

from harness import free_port

TO_SERVER, TO_CLIENT = "to server", "to client"
MOST_BUFFERED = 1 << 18


class Pipe:
    """One direction of a connection."""

    def __init__(self, source, target, direction):
        self.source, self.target, self.direction = source, target, direction
        self.buffer, self.has_ended = bytearray(), False


class PostgresProxy(threading.Thread):
    """Forwards connections to a port of the loopback address to a Unix socket. Any thread may call its methods.

    What was sent in a direction that is stalled arrives late, after `heal`, unless the connection is cut before.
    """

    def __init__(self, path):
        super().__init__(name="postgres-proxy", daemon=True)
        self.path, self.port = str(path), free_port()
        self.stalled = frozenset()
        self.links = set()  # pairs of pipes
        self.listener = None
        self.orders, self.is_open = queue.SimpleQueue(), True
        self.bell, self.ringer = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.bell, selectors.EVENT_READ, None)
        self._listen()
        self.start()

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postern?sslmode=disable"

    def cut(self):
        """Ends all connections; both sides notice."""
        self._do(self._cut)

    def refuse(self):
        """Ends all connections, and takes no new ones until `heal`."""
        self._do(self._refuse)

    def stall(self, directions):
        """Nothing arrives in these directions, on new connections neither, until `heal`."""
        self._do(lambda: self._stall(frozenset(directions)))

    def heal(self):
        self._do(self._heal)

    def close(self):
        self._do(self._close)
        self.join()

    # What follows belongs to the thread.

    def _do(self, order):
        self.orders.put(order)
        self.ringer.send(b"!")

    def run(self):
        while self.is_open:
            for key, events in self.selector.select():
                if key.fileobj is self.bell:
                    for _ in self.bell.recv(4096):
                        self.orders.get()()
                elif key.fileobj is self.listener:
                    self._accept()
                elif key.data in self.links:
                    self._move(key.data, key.fileobj, events)

    def _listen(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def _accept(self):
        with contextlib.suppress(OSError):
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.path)
            except OSError:
                client.close()
                server.close()
                return
            for end in (client, server):
                end.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = (Pipe(client, server, TO_SERVER), Pipe(server, client, TO_CLIENT))
            self.links.add(link)
            self._watch(link)

    def _watch(self, link):
        """Asks for what each end can do next."""
        for there, back in (link, link[::-1]):
            wanted = 0
            if there.direction not in self.stalled and not there.has_ended and len(there.buffer) < MOST_BUFFERED:
                wanted |= selectors.EVENT_READ
            if back.direction not in self.stalled and back.buffer:
                wanted |= selectors.EVENT_WRITE
            known = self.selector.get_map().get(there.source)
            if known is None and wanted:
                self.selector.register(there.source, wanted, link)
            elif known and not wanted:
                self.selector.unregister(there.source)
            elif known and known.events != wanted:
                self.selector.modify(there.source, wanted, link)

    def _move(self, link, end, events):
        there, back = link if link[0].source is end else link[::-1]
        try:
            if events & selectors.EVENT_READ:
                data = end.recv(65536)
                there.buffer += data
                there.has_ended = not data
            for pipe in (there, back):
                if pipe.buffer and pipe.direction not in self.stalled:
                    with contextlib.suppress(BlockingIOError):
                        del pipe.buffer[: pipe.target.send(pipe.buffer)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(link)
            return
        if any(pipe.has_ended and not pipe.buffer for pipe in link):
            self._drop(link)
        else:
            self._watch(link)

    def _drop(self, link):
        self.links.discard(link)
        for pipe in link:
            with contextlib.suppress(KeyError):
                self.selector.unregister(pipe.source)
            pipe.source.close()

    def _cut(self):
        for link in list(self.links):
            self._drop(link)

    def _refuse(self):
        if self.listener:
            self.selector.unregister(self.listener)
            self.listener.close()
            self.listener = None
        self._cut()

    def _stall(self, directions):
        self.stalled = directions
        for link in self.links:
            self._watch(link)

    def _heal(self):
        if not self.listener:
            self._listen()
        self._stall(frozenset())

    def _close(self):
        self._refuse()
        self.is_open = False
