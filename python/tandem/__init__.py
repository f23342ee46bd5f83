# SPDX-License-Identifier: Apache-2.0
"""The client of Tandem, a training service for large language models."""
from tandem.client import Change, Client
from tandem.errors import NotFound, Refused, TandemError, TimedOut, Unreachable
from tandem.spec import spec_from

__all__ = ["Change", "Client", "NotFound", "Refused", "TandemError", "TimedOut", "Unreachable", "spec_from"]
