# SPDX-License-Identifier: Apache-2.0
"""Job files as dictionaries."""
import difflib
import json
import numbers
import pathlib
import sys

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from tandem.errors import Refused
from tandem.v1 import job_pb2

AUTO = -1  # of parallelism.fsdp.prefetch, where a job file says auto
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
INTEGERS = {FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1), FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
            FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1), FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1)}


def spec_from(job):
    """The JobSpec of a dictionary, of a JSON file (a path), or of a JobSpec. Refused where it is none: which values a
    field may have is for the service to say."""
    if isinstance(job, job_pb2.JobSpec):
        return job
    if isinstance(job, (str, pathlib.Path)):
        path = pathlib.Path(job)
        try:
            job = json.loads(path.read_text())
        except ValueError as error:
            raise Refused(f"{path}: it is not JSON: {error}; submit YAML with `tandem submit -f`") from error
    if not isinstance(job, dict):
        raise Refused(f"a job is a dictionary, the path of a JSON file, or a JobSpec, but this is a {type(job).__name__}")
    try:
        return json_format.ParseDict(_block(job, job_pb2.JobSpec.DESCRIPTOR, ""), job_pb2.JobSpec())
    except json_format.ParseError as error:
        raise Refused(f"job: {error}") from error


def _block(block, message, path):
    """What json_format takes for a block of a job file, where enum values are names in lower case without their prefix,
    sizes may have units, and neither null nor a number in quotes is allowed."""
    out = {}
    for name, value in block.items():
        where = f"{path}.{name}" if path else str(name)
        field = message.fields_by_name.get(name)
        if field is None:
            known = list(message.fields_by_name)
            close = difflib.get_close_matches(str(name), known, 1)
            raise Refused(f"{where}: the unknown key {name} is not allowed; allowed: {', '.join(known)}"
                          + (f"; did you mean {close[0]}?" if close else ""))
        if field.message_type is None:
            out[name] = _value(value, field, where)
        elif isinstance(value, dict):
            out[name] = _block(value, field.message_type, where)
        else:
            raise _refused(where, value, "a dictionary with the keys " + ", ".join(field.message_type.fields_by_name))
    return out


def _value(value, field, where):
    if field.enum_type is not None:
        return _enum(value, field.enum_type, where)
    if where == "parallelism.fsdp.prefetch" and value == "auto":
        return AUTO
    if field.name.endswith("_bytes") and isinstance(value, str):
        return _bytes(value, where)
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        wanted, fits = "True or False", isinstance(value, bool)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        wanted, fits = "text", isinstance(value, str)
    elif field.cpp_type in FLOATS:
        wanted, fits = "a finite number" if number else "a number", number and abs(value) <= sys.float_info.max
    elif number and value % 1 == 0:  # not so of what is infinite or no number
        low, high = INTEGERS[field.cpp_type]
        wanted, fits = f"an integer from {low} to {high}", low <= value <= high
    else:
        wanted, fits = "an integer", False
    if not fits:
        raise _refused(where, value, wanted)
    return value


def _enum(text, enum, where):
    allowed = {value.name.removeprefix(enum.values_by_number[0].name.removesuffix("UNSPECIFIED")).lower(): value.name
               for value in enum.values if value.number}
    if not isinstance(text, str) or text not in allowed:
        raise _refused(where, text, ", ".join(allowed))
    return allowed[text]


def _bytes(text, where):
    for unit, size in UNITS.items():
        if text.endswith(unit) and text[:-len(unit)].strip().isdigit():
            return int(text[:-len(unit)]) * size
    raise _refused(where, text, "a number of bytes, or text like 64MiB")


def _refused(where, value, allowed):
    omit = "; give a value, or omit the key for the default" if value is None else ""
    return Refused(f"{where}: {value!r} is not allowed; allowed: {allowed}{omit}")
