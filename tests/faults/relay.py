# SPDX-License-Identifier: Apache-2.0
"""A connection that can be cut, held and slowed down, between a worker and its controller."""
import contextlib
import select
import socket
import threading
import time


class Relay:
    """Listens on a unix socket and passes bytes on to another, both ways, as `mode` says.

    "on": at once. "held": accepts, reads nothing and sends nothing, as after a cable was pulled: neither end is notified. A number: that many bytes a second each way. `target` may change; new connections go to the new one.
    """

    def __init__(self, path, target):
        self.target = target
        self.mode = "on"
        self.connections = []  # pairs of sockets; the thread's, but for cut()
        self.lock = threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def cut(self):
        """Every connection ends at once, for both ends."""
        with self.lock:
            for pair in self.connections:
                for end in pair:
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.stopping = True
        self.thread.join()
        for pair in [(self.listener,), *self.connections]:
            for end in pair:
                end.close()

    def _accept(self):
        client, _ = self.listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self.target))
        except OSError:
            client.close()
            server.close()
            return
        with self.lock:
            self.connections.append((client, server))

    def _pass_on(self, source, pair, allowance):
        """False: the connection is over."""
        other = pair[1] if source is pair[0] else pair[0]
        try:
            data = source.recv(min(65536, allowance))
            if data:
                other.sendall(data)
            return bool(data)
        except OSError:
            return False

    def _run(self):
        while not self.stopping:
            mode = self.mode
            ends = {end: pair for pair in self.connections for end in pair} if mode != "held" else {}
            ready, _, _ = select.select([self.listener, *ends], [], [], 0.02)
            allowance = 65536 if mode == "on" or mode == "held" else max(1, int(mode * 0.02))
            for source in ready:
                if source is self.listener:
                    self._accept()
                elif ends[source] in self.connections and not self._pass_on(source, ends[source], allowance):
                    with self.lock:
                        self.connections.remove(ends[source])
                    for end in ends[source]:
                        end.close()
            if mode not in ("on", "held") and ready:
                time.sleep(0.02)
