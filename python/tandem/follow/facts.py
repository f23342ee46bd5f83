# SPDX-License-Identifier: Apache-2.0
"""Turns reports and jobs into the names and values that trackers show."""
import math

from google.protobuf.descriptor import FieldDescriptor

from tandem.v1 import state_pb2

TOP = 20   # parameters whose norms are shown one by one
BINS = 32  # of a histogram


def values(report):
    """Returns name → number for one report. The report of step 0 is the validation before the first step, without a loss."""
    out = {}
    if report.step > 0:
        out = {"loss": report.loss, "grad_norm": report.grad_norm, "learning_rate": report.learning_rate, "tokens": report.tokens,
               "seconds": report.seconds, "nonfinite": report.nonfinite}
    out.update((name, report.scalars[name]) for name in sorted(report.scalars))
    return out


def configuration(job):
    """Returns path → value, as in a job file, for the fields of the resolved job: {"parallelism.ranks": "2"}."""
    return dict(_fields(job.resolved, ""))


def facts(job):
    """Returns what identifies a run beside its configuration, as far as it is known."""
    out = {"job_id": job.id, "job": job.name, "owner": job.owner, "configuration_digest": job.resolved_digest, "data": job.data}
    if job.attempts:
        last = job.attempts[-1]
        out.update({"program_digest": last.program_digest, "started_from": last.started_from.path,
                    "started_from_digest": last.started_from.digest, "attempts": str(last.number)})
    if job.reason:
        out["reason"] = job.reason
    return {name: value for name, value in out.items() if value}


def state_of(job):
    """Returns "SUCCEEDED", "FAILED" or "CANCELLED"; None if the job has not ended."""
    name = state_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_")
    return name if name in ("SUCCEEDED", "FAILED", "CANCELLED") else None


def top(norms):
    """Returns (name, weight, gradient, update) of at most TOP parameters, those with the largest update/weight."""
    def moves(row):
        ratio = row[3] / row[1] if row[1] > 0 else math.inf if row[3] > 0 else 0.0
        return ratio if not math.isnan(ratio) else math.inf
    return sorted(((name, *each) for name, each in norms.items()), key=moves, reverse=True)[:TOP]


def histograms(norms):
    """Returns (counts, edges) for "weight", "gradient" and "update": log10 of the norms that are finite and not zero."""
    out = {}
    for place, kind in enumerate(("weight", "gradient", "update")):
        logs = [math.log10(each[place]) for each in norms.values() if each[place] > 0 and math.isfinite(each[place])]
        if not logs:
            continue
        low, high = min(logs), max(logs)
        width = (high - low) / BINS or 1.0
        counts = [0] * BINS
        for log in logs:
            counts[min(int((log - low) / width), BINS - 1)] += 1
        out[kind] = (counts, [low + width * edge for edge in range(BINS + 1)])
    return out


def _fields(message, path):
    for field, value in message.ListFields():
        name = f"{path}{field.name}"
        if _is_repeated(field):
            for index, each in enumerate(value):
                if field.message_type:
                    yield from _fields(each, f"{name}[{index}].")
                else:
                    yield f"{name}[{index}]", _word(field, each)
        elif field.message_type:
            yield from _fields(value, name + ".")
        else:
            yield name, _word(field, value)


def _is_repeated(field):
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED  # depends on protobuf's version


def _word(field, value):
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        known = names.get(value)  # None if the controller is newer
        return known.name.removeprefix(names[0].name.removesuffix("UNSPECIFIED")).lower() if known else str(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true" if value else "false"
    return str(value)
