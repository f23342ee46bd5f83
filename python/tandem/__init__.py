# SPDX-License-Identifier: Apache-2.0
"""The Python side of Tandem, a training service for large language models: a client, `tandem data` and `tandem follow`."""
import importlib
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)  # in a build, the messages (tandem.v1) are in another folder
_HOMES = {"Change": "client", "Client": "client", "NotFound": "errors", "Refused": "errors", "TandemError": "errors",
          "TimedOut": "errors", "Unreachable": "errors"}
__all__ = list(_HOMES)


def __getattr__(name):
    """Imports a name of the client when it is first used, since preparing data needs no gRPC."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tandem' has no attribute '{name}'")
    return getattr(importlib.import_module(f"tandem.{_HOMES[name]}"), name)


def __dir__():
    return sorted([*globals(), *_HOMES])
