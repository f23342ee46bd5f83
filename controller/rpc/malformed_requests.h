// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "controller/rpc/interceptors.h"

namespace tandem::controller {

// Answers a call whose request is not the message that its method takes (cut off, of another type, invalid
// UTF-8) with INVALID_ARGUMENT and the type's name; gRPC 1.51 would answer UNIMPLEMENTED, without a word, as
// if the method did not exist. Register it before whatever counts statuses. Only the requests of methods
// that take one: in a stream of requests gRPC does not distinguish a malformed one from the end.
std::unique_ptr<InterceptorFactory> RefuseMalformedRequests();

}  // namespace tandem::controller
