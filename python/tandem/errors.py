# SPDX-License-Identifier: Apache-2.0
"""The exceptions of failed calls. Their text is the service's."""
import contextlib

import grpc


class TandemError(Exception):
    """A call failed; `code` is gRPC's."""

    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code


class NotFound(TandemError):
    """There is no such job."""


class Refused(TandemError):
    """The service refuses the request: a bad spec, a state that does not allow it, or a caller without the right."""


class Unreachable(TandemError):
    """No controller answers at the address, or not in time."""


class TimedOut(TandemError):
    """A `timeout` of the caller has passed; the job continues."""


KINDS = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: Refused,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.ALREADY_EXISTS: Refused,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
    grpc.StatusCode.UNAUTHENTICATED: Refused,
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unreachable,
}


@contextlib.contextmanager
def translated():
    """Raises gRPC's errors as these exceptions."""
    try:
        yield
    except grpc.RpcError as error:
        raise KINDS.get(error.code(), TandemError)((error.details() or str(error.code())).rstrip(), error.code()) from error
