# SPDX-License-Identifier: Apache-2.0
"""`--to csv`: FOLDER/metrics.csv with a row a step, norms.csv, and run.json with the facts about the job."""
import csv
import io
import json
import os

from tandem.follow import facts
from tandem.follow.errors import FollowError
from tandem.follow.tracker import Tracker

METRICS = ["step", "attempt", "loss", "grad_norm", "learning_rate", "tokens", "seconds", "nonfinite"]
NORMS = ["step", "attempt", "parameter", "weight", "gradient", "update"]


class StepFile:
    """A CSV file whose rows begin with step and attempt, in the order of steps. Writing a step again removes its rows and all
    later ones first. Opening the file removes an incomplete last line, which a killed writer left."""

    def __init__(self, path, columns):
        self._path, self.columns = path, columns
        self.attempts = {}   # step → attempt
        self._begins = {}    # step → where its rows begin
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._end = self._read()
        os.ftruncate(self._descriptor, self._end)
        if self._end == 0:
            self._append(_line(self.columns))

    def close(self):
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def write(self, step, attempt, rows):
        """Appends rows, which are dictionaries without step and attempt."""
        new = sorted({name for row in rows for name in row} - set(self.columns))
        if new:
            self._add(new)
        if self._begins and step <= next(reversed(self._begins)):
            self._drop(step)
        self._begins[step], self.attempts[step] = self._end, attempt
        own = {"step": step, "attempt": attempt}
        self._append(b"".join(_line([_text({**row, **own}.get(name)) for name in self.columns]) for row in rows))

    def _read(self):
        """Reads the file and returns where its last complete line ends."""
        with open(self._path, "rb") as file:
            header = file.readline()
            if not header.endswith(b"\n") and _line(self.columns).startswith(header):
                return 0
            self.columns = next(csv.reader([header.decode(errors="replace")]))
            if self.columns[:2] != ["step", "attempt"] or not header.endswith(b"\n"):
                raise FollowError(f"--out: {self._path}: tandem follow did not write this file; name another folder")
            end, last = len(header), -1
            for line in file:
                step, _, rest = line.partition(b",")
                attempt = rest.partition(b",")[0]
                if not line.endswith(b"\n") or not step.isdigit() or not attempt.isdigit() or int(step) < last:
                    break
                last = int(step)
                self._begins.setdefault(last, end)
                self.attempts[last] = int(attempt)
                end += len(line)
        return end

    def _drop(self, step):
        gone = [each for each in self._begins if each >= step]
        self._end = min(self._begins[each] for each in gone)
        for each in gone:
            del self._begins[each], self.attempts[each]
        os.ftruncate(self._descriptor, self._end)

    def _append(self, data):
        done = 0
        while done < len(data):  # one write is enough, unless the disk is full
            done += os.pwrite(self._descriptor, data[done:], self._end + done)
        self._end += len(data)

    def _add(self, names):
        """Adds columns, which are empty in the existing rows."""
        part = self._path + ".part"
        columns = [*self.columns, *names]
        begins, step_begins = {}, {begin: step for step, begin in self._begins.items()}
        with open(self._path, "rb") as old, open(part, "wb") as new:
            new.write(_line(columns))
            position = len(old.readline())
            for line in old:
                if position in step_begins:
                    begins[step_begins[position]] = new.tell()
                position += len(line)
                new.write(line[:-1] + b"," * len(names) + b"\n")
            new.flush()
            os.fsync(new.fileno())
            end = new.tell()
        descriptor = os.open(part, os.O_RDWR)
        os.rename(part, self._path)
        os.close(self._descriptor)
        self._descriptor, self.columns, self._begins, self._end = descriptor, columns, begins, end


class CsvFile(Tracker):
    """Writes the CSV files of one job into a folder that belongs to it."""

    def __init__(self, folder, job):
        self._facts_file = os.path.join(folder, "run.json")
        try:
            with open(self._facts_file, encoding="utf-8") as file:
                owner = json.load(file)["run"]["job_id"]
        except FileNotFoundError:
            owner = job.id
        except (ValueError, KeyError, TypeError):
            raise FollowError(f"--out: {self._facts_file}: tandem follow did not write this file; name another folder") from None
        if owner != job.id:
            raise FollowError(f"--out: {folder}: it has the reports of job {owner}; name another folder")
        self.place = os.path.join(folder, "metrics.csv")
        self._metrics = StepFile(self.place, METRICS)
        self._norms_path = os.path.join(folder, "norms.csv")
        self._norms = StepFile(self._norms_path, NORMS) if os.path.exists(self._norms_path) else None
        self.written = self._metrics.attempts

    def write(self, reports):
        for report in reports:
            self._metrics.write(report.step, report.attempt, [facts.values(report)])

    def write_norms(self, report, norms):
        if self._norms is None:
            self._norms = StepFile(self._norms_path, NORMS)
        self._norms.write(report.step, report.attempt, [dict(zip(NORMS[2:], row)) for row in facts.top(norms)])

    def describe(self, configuration, known):
        part = self._facts_file + ".part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump({"run": known, "configuration": configuration}, file, indent=1, ensure_ascii=False)
            file.write("\n")
        os.rename(part, self._facts_file)

    def close(self, state):
        self._metrics.close()
        if self._norms is not None:
            self._norms.close()


def _text(value):
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _line(cells):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()
