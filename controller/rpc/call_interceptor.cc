// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/call_interceptor.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "controller/rpc/access.h"
#include "google/protobuf/descriptor.h"
#include "platform/shown_text.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {
namespace {

namespace experimental = grpc::experimental;
using google::protobuf::Message;

constexpr char kSubmit[] = "/tandem.v1.Jobs/Submit";

// Returns the name of a code that go-grpc-prometheus uses.
const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  return code >= 0 && static_cast<size_t>(code) < std::size(kNames) ? kNames[code] : "Unknown";
}

// Finds the method of a path, "/tandem.v1.Jobs/Submit"; null if this program has no such method. The health
// service of gRPC has no descriptor.
const google::protobuf::MethodDescriptor* FindMethod(const std::string& path) {
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
      absl::StrReplaceAll(path.substr(std::min<size_t>(1, path.size())), {{"/", "."}}));
}

// Returns the request's field `job` as it is; "" if it has no such string.
std::string JobOf(const std::string& method, const Message& request) {
  if (method == kSubmit) {
    return static_cast<const v1::SubmitRequest&>(request).spec().name();
  }
  using google::protobuf::FieldDescriptor;
  const FieldDescriptor* job = request.GetDescriptor()->FindFieldByName("job");
  const bool is_text =
      job != nullptr && !job->is_repeated() && job->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  return is_text ? request.GetReflection()->GetString(request, job) : "";
}

class CallInterceptor : public experimental::Interceptor {
 public:
  // `info` must outlive its interceptors.
  CallInterceptor(const CallRecords& records, experimental::ServerRpcInfo& info)
      : records_(records),
        info_(info),
        method_(info.method()),
        found_(FindMethod(method_)),
        // Unknown methods share one name, because callers can invent any number of them.
        counted_as_(found_ != nullptr || method_ == "/grpc.health.v1.Health/Check" ||
                            method_ == "/grpc.health.v1.Health/Watch"
                        ? method_
                        : "/unknown/unknown"),
        began_(records.clock.Now()) {
    records_.metrics.RpcStarted(counted_as_);
  }
  ~CallInterceptor() override {
    if (caller_.has_value()) {
      records_.open_calls.Remove(tls::ToText(caller_->identity));
    }
  }

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Points = experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_INITIAL_METADATA)) {
      CountOpen();
    }
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_MESSAGE)) {
      Look(methods->GetRecvMessage());
    }
    if (method_ == kSubmit && job_.empty() &&
        methods->QueryInterceptionHookPoint(Points::PRE_SEND_MESSAGE)) {  // the job was sent as text
      job_ = platform::Shown(static_cast<const v1::Job*>(methods->GetSendMessage())->name(), 100);
    }
    if (methods->QueryInterceptionHookPoint(Points::PRE_SEND_STATUS)) {
      if (is_malformed_) {
        methods->ModifySendStatus(Malformed());
      }
      Record(methods->GetSendStatus());
    }
    methods->Proceed();
  }

 private:
  void CountOpen() {
    absl::StatusOr<Caller> caller = records_.callers.Of(*info_.server_context());
    if (caller.ok()) {
      caller_ = *std::move(caller);
      records_.open_calls.Add(tls::ToText(caller_->identity));
    }
    // For our own methods Access::Admit checks the same, and reports why.
    if (found_ == nullptr &&
        (!caller_.has_value() || !records_.connections.Claim(*caller_).ok() ||
         records_.open_calls.NumOf(tls::ToText(caller_->identity)) > Access::kMostOpenCalls)) {
      info_.server_context()->TryCancel();
    }
  }

  // `received` is null if it does not have the method's type, or if a stream has ended.
  void Look(const void* received) {
    using Type = experimental::ServerRpcInfo::Type;
    const bool is_one = info_.type() == Type::UNARY || info_.type() == Type::SERVER_STREAMING;
    is_malformed_ = is_one && received == nullptr;
    if (is_one && received != nullptr && found_ != nullptr && job_.empty()) {
      // Message is the only base class of a generated message, so it has the same address.
      job_ = platform::Shown(JobOf(method_, *static_cast<const Message*>(received)), 100);
    }
  }

  grpc::Status Malformed() const {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat("the request cannot be read as ",
                         found_ == nullptr ? "the message of this method" : found_->input_type()->full_name(),
                         ": it is missing, cut off, of another type, or holds text that is not UTF-8; send "
                         "that message, as the .proto files of this version define it")};
  }

  void Record(const grpc::Status& status) {
    records_.metrics.RpcHandled(counted_as_, CodeName(status.error_code()), records_.clock.Now() - began_);
    // Health checks and reflection reveal nothing about jobs.
    if (found_ == nullptr) {
      return;
    }
    const MethodRule* rule = RuleOf(found_->full_name());
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if ((rule != nullptr && rule->audited) || IsRefusal(code)) {
      records_.audit.Write({.who = caller_.has_value() ? tls::ToText(caller_->identity) : "unknown",
                            .from = caller_.has_value() ? caller_->address : "unknown",
                            .what = method_.substr(1),
                            .job = job_,
                            .result = {code, status.error_message()}});
    }
  }

  const CallRecords records_;
  experimental::ServerRpcInfo& info_;
  const std::string method_;
  const google::protobuf::MethodDescriptor* const found_;  // null: the method is not ours
  const std::string counted_as_;
  const absl::Time began_;
  std::optional<Caller> caller_;  // set if its call was counted
  std::string job_;
  bool is_malformed_ = false;
};

}  // namespace

std::unique_ptr<experimental::ServerInterceptorFactoryInterface> InterceptCalls(const CallRecords& records) {
  struct Factory : experimental::ServerInterceptorFactoryInterface {
    explicit Factory(const CallRecords& of_all) : records(of_all) {}
    experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* info) override {
      return new CallInterceptor(records, *info);
    }
    const CallRecords records;
  };
  return std::make_unique<Factory>(records);
}

}  // namespace tandem::controller
