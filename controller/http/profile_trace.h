// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>

#include <functional>

#include "controller/http/http_server.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::controller {

// Records steps of a running job, as Jobs.Profile does (`query`: its fields), and answers with a trace in
// Chrome's trace event format once all ranks have sent theirs; with an error if that takes more than five
// minutes. `mark` marks a call as the page's (JsonApi::Mark).
HttpAnswer ProfileTrace(v1::Jobs::Stub& stub, const std::function<void(grpc::ClientContext&)>& mark,
                        const QueryFields& query);

}  // namespace tandem::controller
