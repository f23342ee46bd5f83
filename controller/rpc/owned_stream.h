// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "controller/rpc/rpc_errors.h"

namespace tandem::controller {

// A stream that ends before anything is read or written.
template <typename Reactor>
Reactor* RefuseCall(const absl::Status& status) {
  class Refused : public Reactor {
   public:
    explicit Refused(const absl::Status& why) { this->Finish(ToRpc(why)); }
    void OnDone() override { delete this; }
  };
  return new Refused(status);
}

}  // namespace tandem::controller
