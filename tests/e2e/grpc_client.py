# SPDX-License-Identifier: Apache-2.0
"""A gRPC client that knows the service by reflection alone, as a foreign program would."""
import queue
import threading

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


# Where a pool is freed while another thread parses a message of its own pool, protobuf 7.36 crashes: none is freed.
_pools = []


class Client:
    """Calls any method of a server that it learns about by reflection."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)
        _pools.append(self.pool)
        self.building = threading.Lock()  # a file that two threads ask for at once would be added twice

    def _method(self, service, method):
        with self.building:
            descriptor = self.pool.FindServiceByName(service).methods_by_name[method]
            request = message_factory.GetMessageClass(descriptor.input_type)
            response = message_factory.GetMessageClass(descriptor.output_type)
        return request, response, f"/{service}/{method}"

    def call(self, service, method, body):
        request, response, path = self._method(service, method)
        stub = self.channel.unary_unary(path, request.SerializeToString, response.FromString)
        return stub(json_format.ParseDict(body, request()), timeout=60)

    def stream(self, service, method, body):
        request, response, path = self._method(service, method)
        stub = self.channel.unary_stream(path, request.SerializeToString, response.FromString)
        return stub(json_format.ParseDict(body, request()), timeout=60)

    def message(self, name, body=None):
        """A message of that full name."""
        message = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))()
        return json_format.ParseDict(body or {}, message)

    def send(self, service, method, request):
        """The answer to a message."""
        _, response, path = self._method(service, method)
        call = self.channel.unary_unary(path, lambda message: message.SerializeToString(), response.FromString)
        return call(request, timeout=60)

    def converse(self, service, method, messages, acknowledged, seconds=10):
        """Sends messages (or bodies of some) on a stream of both directions; what was answered until `acknowledged`
        is true of an answer, the server ended the stream, or the time is over."""
        request, response, path = self._method(service, method)
        outgoing = queue.Queue()
        for message in messages:
            outgoing.put(json_format.ParseDict(message, request()) if isinstance(message, dict) else message)
        call = self.channel.stream_stream(path, request.SerializeToString, response.FromString)(
            iter(outgoing.get, None), timeout=seconds)
        answers = []
        try:
            for answer in call:
                answers.append(answer)
                if acknowledged(answer):
                    break
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INVALID_ARGUMENT,
                                    grpc.StatusCode.FAILED_PRECONDITION):
                raise
        finally:
            outgoing.put(None)
            call.cancel()
        return answers
