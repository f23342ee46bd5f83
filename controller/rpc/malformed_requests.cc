// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/rpc/interceptors.h"

namespace tandem::controller {
namespace {

namespace experimental = grpc::experimental;

// The type of the message that "/tandem.v1.Jobs/Submit" takes.
std::string RequestType(const std::string& method) {
  const google::protobuf::MethodDescriptor* found = FindMethod(method);
  return found == nullptr ? "the message of this method" : found->input_type()->full_name();
}

class Refuser : public experimental::Interceptor {
 public:
  explicit Refuser(std::string method) : method_(std::move(method)) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Points = experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_MESSAGE)) {
      malformed_ = methods->GetRecvMessage() == nullptr;
    }
    if (malformed_ && methods->QueryInterceptionHookPoint(Points::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(
          {grpc::StatusCode::INVALID_ARGUMENT,
           absl::StrCat("the request cannot be read as ", RequestType(method_),
                        ": it is missing, cut off, of another type, or holds text that is not UTF-8; send "
                        "that message, as the .proto files of this version define it")});
    }
    methods->Proceed();
  }

 private:
  const std::string method_;
  bool malformed_ = false;
};

}  // namespace

std::unique_ptr<InterceptorFactory> RefuseMalformedRequests() {
  return InterceptWith([](experimental::ServerRpcInfo* info) {
    using Type = experimental::ServerRpcInfo::Type;
    const bool one_request = info->type() == Type::UNARY || info->type() == Type::SERVER_STREAMING;
    return one_request ? new Refuser(info->method()) : nullptr;
  });
}

}  // namespace tandem::controller
