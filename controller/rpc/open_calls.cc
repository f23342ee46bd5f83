// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/open_calls.h"

#include <optional>
#include <utility>

#include "controller/rpc/access.h"

namespace tandem::controller {
namespace {

namespace experimental = grpc::experimental;

class Counter : public experimental::Interceptor {
 public:
  Counter(const Callers& callers, OpenCalls& open, OpenConnections& connections,
          experimental::ServerRpcInfo* info)
      : callers_(callers), open_(open), connections_(connections), info_(info) {}
  ~Counter() override {
    if (identity_.has_value()) {
      open_.Remove(*identity_);
    }
  }

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Points = experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_INITIAL_METADATA)) {
      absl::StatusOr<Caller> caller = callers_.Of(*info_->server_context());
      if (caller.ok()) {
        identity_ = caller->identity;
        open_.Add(*identity_);
      }
      // Access::Admit asks the same for our methods, and says the reason.
      if (FindMethod(info_->method()) == nullptr && (!caller.ok() || !connections_.Claim(*caller).ok() ||
                                                     open_.NumOf(*identity_) > Access::kMostOpenCalls)) {
        info_->server_context()->TryCancel();
      }
    }
    methods->Proceed();
  }

 private:
  const Callers& callers_;
  OpenCalls& open_;
  OpenConnections& connections_;
  experimental::ServerRpcInfo* const info_;  // outlives its interceptors
  std::optional<tls::Identity> identity_;    // that was counted
};

}  // namespace

void OpenCalls::Add(const tls::Identity& identity) {
  const absl::MutexLock lock(&mu_);
  ++nums_[tls::ToText(identity)];
}

void OpenCalls::Remove(const tls::Identity& identity) {
  const absl::MutexLock lock(&mu_);
  const auto it = nums_.find(tls::ToText(identity));
  if (--it->second == 0) {
    nums_.erase(it);
  }
}

size_t OpenCalls::NumOf(const tls::Identity& identity) const {
  const absl::MutexLock lock(&mu_);
  const auto it = nums_.find(tls::ToText(identity));
  return it == nums_.end() ? 0 : it->second;
}

std::unique_ptr<InterceptorFactory> CountOpenCalls(const Callers& callers, OpenCalls& open,
                                                   OpenConnections& connections) {
  return InterceptWith(
      [&](experimental::ServerRpcInfo* info) { return new Counter(callers, open, connections, info); });
}

}  // namespace tandem::controller
