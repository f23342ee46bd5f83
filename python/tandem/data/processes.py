# SPDX-License-Identifier: Apache-2.0
"""Processes that tokenise parts, one part at a time, each over a pipe of its own.

They share no lock and no queue, so any of them can be killed at any moment without blocking the others. (The
concurrent.futures.ProcessPoolExecutor of Python 3.11 waits forever for a process that is killed while it receives a part.)
"""
import collections
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal

from tandem.data.errors import DataError
from tandem.data.tokenizer import Tokenizer, tokenize_part


class Processes:
    """Starts `number` processes, which are killed at the end of the `with` block."""

    def __init__(self, number, tokenizer, fields):
        self._number, self._settings = number, (tokenizer, fields)
        self._running = []  # (process, the parent's end of its pipe)

    def __enter__(self):
        multiprocessing.resource_tracker.ensure_running()  # now, because it would unblock the signals that _start blocks
        try:
            for _ in range(self._number):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process, _pipe in self._running:
            process.kill()
        for process, _pipe in self._running:
            process.join()

    def results(self, parts):
        """Yields (part, the result of tokenize_part) for each of `parts`, in their order. Clears part.raws."""
        waiting = collections.deque()  # parts that processes have, with their places
        for index, part in enumerate(parts):
            place = index % self._number
            if len(waiting) == self._number:
                yield self._finished(*waiting.popleft())
            self._send(place, (part.raws, part.has_fields))
            part.raws = None
            waiting.append((part, place))
        while waiting:
            yield self._finished(*waiting.popleft())

    def _start(self):
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, *self._settings), daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))  # which a process inherits
        try:
            process.start()
            self._running.append((process, here))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        there.close()

    def _send(self, place, value):
        try:
            self._running[place][1].send(value)
        except OSError as error:
            raise self._ended(place) from error

    def _finished(self, part, place):
        try:
            return part, self._running[place][1].recv()
        except (EOFError, OSError) as error:
            raise self._ended(place) from error

    def _ended(self, place):
        process = self._running[place][0]
        process.join()
        if process.exitcode == -signal.SIGKILL:
            return DataError("a process that tokenises was killed, perhaps for want of memory; use fewer --processes or a smaller "
                             "--max-document")
        return DataError(f"a process that tokenises ended with code {process.exitcode}; what it said stands above")


def _work(pipe, tokenizer, fields):
    """Runs in such a process, with one thread, until the parent ends. Ctrl-C is the parent's alone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer(**tokenizer)
    while True:
        try:
            raws, has_fields = pipe.recv()
        except (EOFError, OSError):
            return
        tokens = tokenize_part(tokenizer, fields, raws, has_fields)  # its errors end the process with their text
        try:
            pipe.send(tokens)
        except OSError:
            return
