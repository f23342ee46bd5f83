# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of long work: on a terminal one line, which is overwritten; elsewhere a line now and then."""
import sys
import time

BAR = 30
EVERY_SECONDS = {True: 0.1, False: 30.0}  # on a terminal, elsewhere


class Progress:
    """`total` in bytes of input, or in tokens. clock: seconds that never go back."""

    def __init__(self, total, already=0, stream=None, clock=time.monotonic, name="prepare"):
        self._name = name
        self._total, self._already, self._clock = max(total, 1), already, clock
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._started = self._shown = clock()

    def show(self, done, tokens):
        now = self._clock()
        if now - self._shown < EVERY_SECONDS[self._terminal]:
            return
        self._shown = now
        seconds = max(now - self._started, 1e-9)
        rate = (done - self._already) / seconds
        share = min(done / self._total, 1)
        left = (self._total - done) / rate if rate > 0 else 0
        line = (f"{share:4.0%}  {size(done)} of {size(self._total)}  {size(rate)}/s  {tokens / 1e6:.1f}M tokens  "
                f"ETA {int(left) // 3600}:{int(left) // 60 % 60:02}:{int(left) % 60:02}")
        if self._terminal:
            full = int(share * BAR)
            self._stream.write(f"\r\033[K\033[?7l{'━' * full}{'─' * (BAR - full)} {line}\033[?7h")
        else:
            self._stream.write(f"{self._name}: {line}\n")
        self._stream.flush()

    def end(self):
        if self._terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()


def size(count):
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
