// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/audit.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "controller/rpc/access.h"
#include "controller/rpc/rate_limit.h"
#include "controller/rpc/rpc_method.h"
#include "jobspec/text.h"
#include "platform/log.h"
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

bool IsRefusal(grpc::StatusCode code) {
  return code == grpc::StatusCode::PERMISSION_DENIED || code == grpc::StatusCode::UNAUTHENTICATED ||
         code == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

// Which refusals are told. Thread-safe.
class Refusals {
 public:
  explicit Refusals(const platform::Clock& clock) : rate_(kRefusalsPerSecond, kRefusalsAtOnce, clock) {}

  // False: not this one. `left_out`: those of everybody that were not told since the last that was.
  bool Tell(const std::string& who, int64_t& left_out) {
    if (rate_.Take(who) > absl::ZeroDuration()) {
      ++left_out_;
      return false;
    }
    left_out = left_out_.exchange(0);
    return true;
  }

 private:
  RateLimit rate_;
  std::atomic<int64_t> left_out_ = 0;
};

class Auditor : public experimental::Interceptor {
 public:
  Auditor(const Callers& callers, Refusals& refusals, experimental::ServerRpcInfo* info, bool always)
      : callers_(callers), refusals_(refusals), info_(info), method_(info->method()), always_(always) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Points = experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_INITIAL_METADATA)) {
      caller_ = callers_.Of(*info_->server_context());  // while it is there
    }
    if (methods->QueryInterceptionHookPoint(Points::POST_RECV_MESSAGE) && job_.empty()) {
      job_ = jobspec::Shown(JobOf(method_, methods->GetRecvMessage()), 100);
    }
    if (methods->QueryInterceptionHookPoint(Points::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (always_ || IsRefusal(status.error_code())) {
        Write(status);
      }
    }
    methods->Proceed();
  }

 private:
  void Write(const grpc::Status& status) const {
    const bool refused = IsRefusal(status.error_code());
    const std::string who = caller_.has_value() ? tls::ToText(caller_->identity) : "unknown";
    int64_t left_out = 0;
    if (refused && !refusals_.Tell(who, left_out)) {
      return;
    }
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    platform::Log(refused ? platform::LogLevel::kWarning : platform::LogLevel::kInfo, "audit",
                  {{"who", who},
                   {"from", caller_.has_value() ? caller_->address : "unknown"},
                   {"method", method_.substr(1)},
                   {"job", job_},
                   {"result", absl::StatusCodeToString(code)},
                   {"why", refused ? jobspec::Shown(status.error_message(), 500) : ""},
                   {"left_out", absl::StrCat(left_out)}});
  }

  const Callers& callers_;
  Refusals& refusals_;
  experimental::ServerRpcInfo* const info_;  // outlives its interceptors
  const std::string method_;
  const bool always_;
  std::optional<Caller> caller_;
  std::string job_;
};

class AuditorFactory : public experimental::ServerInterceptorFactoryInterface {
 public:
  AuditorFactory(const Callers& callers, const platform::Clock& clock)
      : callers_(callers), refusals_(clock) {}

  experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* info) override {
    const google::protobuf::MethodDescriptor* method = FindMethod(info->method());
    const MethodRule* rule = method == nullptr ? nullptr : RuleOf(method->full_name());
    // Health checks and reflection reveal nothing about jobs.
    return method == nullptr ? nullptr
                             : new Auditor(callers_, refusals_, info, rule != nullptr && rule->audited);
  }

 private:
  const Callers& callers_;
  Refusals refusals_;
};

}  // namespace

std::unique_ptr<experimental::ServerInterceptorFactoryInterface> AuditCalls(const Callers& callers,
                                                                            const platform::Clock& clock) {
  return std::make_unique<AuditorFactory>(callers, clock);
}

}  // namespace tandem::controller
