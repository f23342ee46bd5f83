// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "controller/metrics/metrics.h"
#include "google/protobuf/descriptor.h"
#include "platform/clock.h"

namespace tandem::controller {

using InterceptorFactory = grpc::experimental::ServerInterceptorFactoryInterface;

// An interceptor for each call that begins: what `make` returns, which is null for one that needs none.
inline std::unique_ptr<InterceptorFactory> InterceptWith(
    std::function<grpc::experimental::Interceptor*(grpc::experimental::ServerRpcInfo*)> make) {
  struct Factory : InterceptorFactory {
    grpc::experimental::Interceptor* CreateServerInterceptor(
        grpc::experimental::ServerRpcInfo* info) override {
      return of_call(info);
    }
    std::function<grpc::experimental::Interceptor*(grpc::experimental::ServerRpcInfo*)> of_call;
  };
  auto factory = std::make_unique<Factory>();
  factory->of_call = std::move(make);
  return factory;
}

// The method that a call names, "/tandem.v1.Jobs/Submit"; null if this program has no such method. The health
// service of gRPC has no descriptor.
inline const google::protobuf::MethodDescriptor* FindMethod(const std::string& path) {
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
      absl::StrReplaceAll(path.substr(std::min<size_t>(1, path.size())), {{"/", "."}}));
}

// Answers a call whose request is not the message that its method takes (cut off, of another type, invalid
// UTF-8) with INVALID_ARGUMENT and the type's name; gRPC 1.51 would answer UNIMPLEMENTED, without a word, as
// if the method did not exist. Register it before interceptors that count statuses. It looks only at methods
// that take one request: in a stream of requests gRPC does not distinguish a malformed one from the end.
std::unique_ptr<InterceptorFactory> RefuseMalformedRequests();

// Counts every RPC, begun and ended, in `metrics`, and times it by `clock`. Both outlive the server.
std::unique_ptr<InterceptorFactory> CountRpcs(Metrics& metrics, const platform::Clock& clock);

}  // namespace tandem::controller
