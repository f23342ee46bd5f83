# SPDX-License-Identifier: Apache-2.0
"""A client that begins many gRPC calls on one connection and stops in the middle of each one's message."""
import select
import socket
import ssl
import struct
import time

DATA, HEADERS, RESET, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
INITIAL_WINDOW_SIZE = 4
MOST_OF_A_FRAME = 16384
BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """Of HPACK: a literal that is not indexed, without Huffman coding."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


FIELDS = b"".join(field(name, value) for name, value in [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/tandem.v1.Jobs/Submit"), (b":authority", b"a"),
    (b"content-type", b"application/grpc"), (b"te", b"trailers")])


class HalfSent:
    """`calls` of one message of `length` bytes each, of which the last never comes."""

    def __init__(self, connection, calls, length):
        """`connection`: a socket, plain or of TLS, or the path of one."""
        self.socket = connection
        if isinstance(connection, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(connection)
        self.socket.setblocking(False)
        self.window, self.initial = 65535, 65535
        self.streams = {2 * i + 1: [length + 4, 0] for i in range(calls)}  # left to send, window beside the initial
        self.out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
        for stream in self.streams:
            self.out += frame(HEADERS, 4, stream, FIELDS)
            self.out += self.data(stream, b"\0" + struct.pack(">I", length))
        self.into = b""
        self.ended = 0  # calls

    def data(self, stream, payload):
        self.window -= len(payload)
        self.streams[stream][0] -= len(payload)
        self.streams[stream][1] -= len(payload)
        return frame(DATA, 0, stream, payload)

    def fill(self):
        for stream, (left, used) in list(self.streams.items()):
            size = min(left, self.window, self.initial + used, MOST_OF_A_FRAME)
            if size > 0:
                self.out += self.data(stream, bytes(size))

    def take(self):
        while len(self.into) >= 9:
            size = int.from_bytes(self.into[:3], "big")
            if len(self.into) < 9 + size:
                return
            kind, flags = self.into[3], self.into[4]
            stream = int.from_bytes(self.into[5:9], "big")
            payload, self.into = self.into[9:9 + size], self.into[9 + size:]
            if kind == SETTINGS and flags & 1 == 0:
                for at in range(0, size, 6):
                    name, value = struct.unpack(">HI", payload[at:at + 6])
                    if name == INITIAL_WINDOW_SIZE:
                        self.initial = value
                self.out += frame(SETTINGS, 1, 0, b"")
            elif kind == PING and flags & 1 == 0:
                self.out += frame(PING, 1, 0, payload)
            elif kind == WINDOW_UPDATE and stream == 0:
                self.window += int.from_bytes(payload, "big")
            elif kind == WINDOW_UPDATE and stream in self.streams:
                self.streams[stream][1] += int.from_bytes(payload, "big")
            elif kind == RESET or (kind in (HEADERS, DATA) and flags & 1):
                self.ended += self.streams.pop(stream, None) is not None

    def step(self):
        """Sends and reads what goes at once; whether any of it did."""
        if len(self.out) < 1 << 20:
            self.fill()
        moved = 0
        if self.out:
            try:
                moved = self.socket.send(self.out)
                self.out = self.out[moved:]
            except BUSY:
                pass
        try:
            got = self.socket.recv(1 << 16)
            if not got:
                raise ConnectionResetError
            self.into += got
            moved += len(got)
            self.take()
        except BUSY:
            pass
        return moved > 0

    def close(self):
        self.socket.close()


def send(clients, seconds):
    """Until nobody gets any further, or for so long. How many connections the server has closed."""
    closed, end, quiet = [], time.monotonic() + seconds, 0
    while time.monotonic() < end and quiet < 60:
        moved = False
        for client in clients:
            if client not in closed:
                try:
                    moved = client.step() or moved
                except (ConnectionError, ssl.SSLEOFError):
                    closed.append(client)
        quiet = 0 if moved else quiet + 1
        if not moved:
            select.select([], [], [], 0.05)
    return len(closed)
