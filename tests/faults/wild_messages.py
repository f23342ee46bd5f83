# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages that fit their schema and nothing else."""
import math

INTEGERS = [0, 1, -1, 2, 3, 7, 64, 1000, 2**31 - 1, -2**31, 2**53, 2**63 - 1, -2**63]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, 5e-324, math.inf, -math.inf, math.nan]
TEXTS = ["", "a", "0", "-1", "newest", "none", "/", "/etc/passwd", "../..", "a\nb", "\x1b[31m", "\u202e", "größe",
         "a" * 300, "%s%n", "'; --", "/dev/zero", "/proc/self/mem", "\0"]


def _one(field, rng):
    """A value of a field that is not a message."""
    kind = field.type
    if kind == field.TYPE_ENUM:
        return rng.choice([*(value.number for value in field.enum_type.values), 99, -1])
    if kind in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return rng.choice([*FLOATS, rng.uniform(-10, 10)])
    if kind == field.TYPE_BOOL:
        return rng.random() < 0.5
    if kind == field.TYPE_STRING:
        return rng.choice(TEXTS)
    if kind == field.TYPE_BYTES:
        return rng.randbytes(rng.choice([0, 1, 100]))
    bits = 32 if kind in (field.TYPE_INT32, field.TYPE_UINT32, field.TYPE_SINT32, field.TYPE_FIXED32,
                          field.TYPE_SFIXED32) else 64
    unsigned = kind in (field.TYPE_UINT32, field.TYPE_UINT64, field.TYPE_FIXED32, field.TYPE_FIXED64)
    low, high = (0, 2**bits - 1) if unsigned else (-2**(bits - 1), 2**(bits - 1) - 1)
    return min(high, max(low, rng.choice([*INTEGERS, rng.randrange(-100, 100)])))


def _is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _set(message, field, rng, depth):
    if _is_map(field):
        return  # the few that there are have text on both sides, which the other fields try
    if field.is_repeated:
        for _ in range(rng.choice([0, 1, 2, 5])):
            if field.message_type is not None:
                fill(getattr(message, field.name).add(), rng, depth + 1)
            else:
                getattr(message, field.name).append(_one(field, rng))
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        fill(part, rng, depth + 1)
    else:
        setattr(message, field.name, _one(field, rng))


def fill(message, rng, depth=0):
    """Sets about half of the fields, and those of its parts, to anything of their type."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < (0.5 if depth < 4 else 0.1):
            _set(message, field, rng, depth)


def change(message, rng):
    """One field somewhere in it becomes anything of its type, appears or goes."""
    parts = [message]
    for field, value in message.ListFields():
        if field.message_type is not None and not field.is_repeated:
            parts.append(value)
    part = rng.choice(parts)
    if part is not message and rng.random() < 0.5:
        return change(part, rng)
    field = rng.choice(list(part.DESCRIPTOR.fields))
    if rng.random() < 0.25:
        part.ClearField(field.name)
    else:
        _set(part, field, rng, depth=3)
