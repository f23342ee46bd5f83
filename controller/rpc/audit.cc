// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/audit.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "controller/rpc/access.h"
#include "platform/log.h"
#include "platform/shown_text.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {
namespace {

namespace experimental = grpc::experimental;

// The job that a request names, in its own words.
std::string JobOf(const std::string& method, const void* message) {
  if (message == nullptr) {
    return "";
  }
  if (method == "/tandem.v1.Jobs/Submit") {
    return static_cast<const v1::SubmitRequest*>(message)->spec().name();
  }
  if (method == "/tandem.v1.Jobs/Cancel") {
    return static_cast<const v1::CancelRequest*>(message)->job();
  }
  if (method == "/tandem.v1.Jobs/Checkpoint") {
    return static_cast<const v1::CheckpointRequest*>(message)->job();
  }
  if (method == "/tandem.v1.Jobs/ReadLog") {
    return static_cast<const v1::LogRequest*>(message)->job();
  }
  if (method == "/tandem.v1.Jobs/Profile") {
    return static_cast<const v1::ProfileRequest*>(message)->job();
  }
  return "";
}

bool IsRefusal(absl::StatusCode code) {
  return code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnauthenticated ||
         code == absl::StatusCode::kResourceExhausted;
}

class Auditor : public experimental::Interceptor {
 public:
  Auditor(const Callers& callers, AuditLog& log, experimental::ServerRpcInfo* info, bool always)
      : callers_(callers), log_(log), info_(info), method_(info->method()), always_(always) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Points = experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_INITIAL_METADATA)) {
      if (absl::StatusOr<Caller> caller = callers_.Of(*info_->server_context()); caller.ok()) {
        caller_ = *std::move(caller);
      }
    }
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_MESSAGE) && job_.empty()) {
      job_ = platform::Shown(JobOf(method_, methods->GetRecvMessage()), 100);
    }
    if (method_ == "/tandem.v1.Jobs/Submit" && job_.empty() &&
        methods->QueryInterceptionHookPoint(Points::PRE_SEND_MESSAGE)) {  // the job was a text
      job_ = platform::Shown(static_cast<const v1::Job*>(methods->GetSendMessage())->name(), 100);
    }
    if (methods->QueryInterceptionHookPoint(Points::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (always_ || IsRefusal(static_cast<absl::StatusCode>(status.error_code()))) {
        Write(status);
      }
    }
    methods->Proceed();
  }

 private:
  void Write(const grpc::Status& status) const {
    log_.Write({.who = caller_.has_value() ? tls::ToText(caller_->identity) : "unknown",
                .from = caller_.has_value() ? caller_->address : "unknown",
                .what = method_.substr(1),
                .job = job_,
                .result = {static_cast<absl::StatusCode>(status.error_code()), status.error_message()}});
  }

  const Callers& callers_;
  AuditLog& log_;
  experimental::ServerRpcInfo* const info_;  // outlives its interceptors
  const std::string method_;
  const bool always_;
  std::optional<Caller> caller_;
  std::string job_;
};

}  // namespace

void AuditLog::Write(const AuditLine& line) {
  const bool refused = IsRefusal(line.result.code());
  int64_t left_out = 0;
  if (refused) {
    if (rate_.Take(line.who) > absl::ZeroDuration()) {
      ++left_out_;
      return;
    }
    left_out = left_out_.exchange(0);
  }
  const absl::string_view why = refused ? line.result.message() : "";
  platform::Log(refused ? platform::LogLevel::kWarning : platform::LogLevel::kInfo, "audit",
                {{"who", line.who},
                 {"from", line.from},
                 {"method", line.what},
                 {"job", line.job},
                 {"result", absl::StatusCodeToString(line.result.code())},
                 {"why", platform::Shown(std::string(why), 500)},
                 {"left_out", absl::StrCat(left_out)}});
}

std::unique_ptr<InterceptorFactory> AuditCalls(const Callers& callers, AuditLog& log) {
  return InterceptWith([&](experimental::ServerRpcInfo* info) -> experimental::Interceptor* {
    const google::protobuf::MethodDescriptor* method = FindMethod(info->method());
    const MethodRule* rule = method == nullptr ? nullptr : RuleOf(method->full_name());
    // Health checks and reflection reveal nothing about jobs.
    return method == nullptr ? nullptr : new Auditor(callers, log, info, rule != nullptr && rule->audited);
  });
}

}  // namespace tandem::controller
