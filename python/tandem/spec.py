# SPDX-License-Identifier: Apache-2.0
"""Job files as dictionaries."""
import json
import pathlib

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from tandem.errors import Refused
from tandem.v1 import job_pb2

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def spec_from(job):
    """The JobSpec of a dictionary, of a JSON file (a path), or of a JobSpec. Refused where it is none; what its fields
    may be is for the service to say."""
    if isinstance(job, job_pb2.JobSpec):
        return job
    if isinstance(job, (str, pathlib.Path)):
        path = pathlib.Path(job)
        try:
            job = json.loads(path.read_text())
        except ValueError as error:
            raise Refused(f"{path}: no JSON: {error}; `tandem submit -f` takes YAML") from error
    if not isinstance(job, dict):
        raise Refused(f"a job is a dictionary, the path of a JSON file, or a JobSpec; this is a {type(job).__name__}")
    try:
        return json_format.ParseDict(_full(job, job_pb2.JobSpec.DESCRIPTOR, ""), job_pb2.JobSpec())
    except json_format.ParseError as error:
        raise Refused(f"job: {error}") from error


def _full(value, message, path):
    """Enum values of job files are their names without prefix, in lower case; sizes may have units."""
    if not isinstance(value, dict):
        raise Refused(f"{path or 'job'}: {value!r} is not a dictionary")
    out = {}
    for name, each in value.items():
        field = message.fields_by_name.get(name)
        if field is None:
            raise Refused(f"{path}{name}: there is no such field; {', '.join(sorted(message.fields_by_name))} are there")
        where = path + name
        if field.message_type is not None:
            out[name] = _full(each, field.message_type, where + ".")
        elif field.enum_type is not None:
            out[name] = _enum(each, field.enum_type, where)
        elif name.endswith("_bytes") and isinstance(each, str):
            out[name] = _bytes(each, where)
        elif field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT) and isinstance(each, bool):
            raise Refused(f"{where}: {each} is not a number")
        else:
            out[name] = each
    return out


def _enum(text, enum, where):
    allowed = {value.name.removeprefix(enum.values_by_number[0].name.removesuffix("UNSPECIFIED")).lower(): value.name
               for value in enum.values if value.number}
    if text not in allowed:
        raise Refused(f"{where}: {text!r} is not allowed; allowed: {', '.join(allowed)}")
    return allowed[text]


def _bytes(text, where):
    for unit, size in UNITS.items():
        if text.endswith(unit) and text[:-len(unit)].strip().isdigit():
            return int(text[:-len(unit)]) * size
    raise Refused(f"{where}: {text!r} is not a size; write 64MiB, or a number of bytes")
