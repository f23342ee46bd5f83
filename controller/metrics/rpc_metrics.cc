// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/rpc_metrics.h"

#include <string>

#include "controller/rpc/rpc_method.h"

namespace tandem::controller {
namespace {

// The names that go-grpc-prometheus uses.
const char* CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::CANCELLED:
      return "Canceled";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "InvalidArgument";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "DeadlineExceeded";
    case grpc::StatusCode::NOT_FOUND:
      return "NotFound";
    case grpc::StatusCode::ALREADY_EXISTS:
      return "AlreadyExists";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "PermissionDenied";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "ResourceExhausted";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "FailedPrecondition";
    case grpc::StatusCode::ABORTED:
      return "Aborted";
    case grpc::StatusCode::OUT_OF_RANGE:
      return "OutOfRange";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "Unimplemented";
    case grpc::StatusCode::INTERNAL:
      return "Internal";
    case grpc::StatusCode::UNAVAILABLE:
      return "Unavailable";
    case grpc::StatusCode::DATA_LOSS:
      return "DataLoss";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "Unauthenticated";
    default:
      return "Unknown";
  }
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

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(Metrics& metrics, const platform::Clock& clock) : metrics_(metrics), clock_(clock) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    // Whoever calls can invent names: they share one.
    const std::string method = info->method();
    const bool known = FindMethod(method) != nullptr || method == "/grpc.health.v1.Health/Check" ||
                       method == "/grpc.health.v1.Health/Watch";
    return new Counter(metrics_, clock_, known ? method : "/unknown/unknown");
  }

 private:
  Metrics& metrics_;
  const platform::Clock& clock_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountRpcs(
    Metrics& metrics, const platform::Clock& clock) {
  return std::make_unique<Factory>(metrics, clock);
}

}  // namespace tandem::controller
