// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <string>

#include "controller/rpc/interceptors.h"

namespace tandem::controller {
namespace {

// The names that go-grpc-prometheus uses, by code.
const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  return code >= 0 && static_cast<size_t>(code) < std::size(kNames) ? kNames[code] : "Unknown";
}

class Counter : public grpc::experimental::Interceptor {
 public:
  Counter(Metrics& metrics, const platform::Clock& clock, std::string method)
      : metrics_(metrics), clock_(clock), began_(clock.Now()), method_(std::move(method)) {
    metrics_.RpcStarted(method_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      metrics_.RpcHandled(method_, CodeName(methods->GetSendStatus().error_code()), clock_.Now() - began_);
    }
    methods->Proceed();
  }

 private:
  Metrics& metrics_;
  const platform::Clock& clock_;
  const absl::Time began_;
  const std::string method_;
};

}  // namespace

std::unique_ptr<InterceptorFactory> CountRpcs(Metrics& metrics, const platform::Clock& clock) {
  return InterceptWith([&](grpc::experimental::ServerRpcInfo* info) {
    // Whoever calls can invent names: they share one.
    const std::string method = info->method();
    const bool known = FindMethod(method) != nullptr || method == "/grpc.health.v1.Health/Check" ||
                       method == "/grpc.health.v1.Health/Watch";
    return new Counter(metrics, clock, known ? method : "/unknown/unknown");
  });
}

}  // namespace tandem::controller
