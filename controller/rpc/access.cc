// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/access.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "controller/rpc/call_limits.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

using tls::Role;

bool May(const MethodRule& rule, Role role) {
  return role == Role::kLocal || (role == Role::kWorker ? rule.worker : rule.user);
}

// "Jobs.Cancel" for "tandem.v1.Jobs.Cancel".
absl::string_view Short(std::string_view method) {
  const size_t dot = method.find_last_of('.', method.rfind('.') - 1);
  method.remove_prefix(dot == std::string_view::npos ? 0 : dot + 1);
  return {method.data(), method.size()};
}

}  // namespace

const MethodRule* RuleOf(std::string_view method) {
  constexpr MethodRule kUsers{.user = true};
  constexpr MethodRule kChanges{.user = true, .audited = true};
  constexpr MethodRule kWorkers{.worker = true};
  static const auto& rules = *new std::map<std::string_view, MethodRule>{
      {"tandem.v1.Jobs.Submit", kChanges},
      {"tandem.v1.Jobs.Validate", kUsers},
      {"tandem.v1.Jobs.GetJob", kUsers},
      {"tandem.v1.Jobs.ListJobs", kUsers},
      {"tandem.v1.Jobs.ListWorkers", kUsers},
      {"tandem.v1.Jobs.ListEvents", kUsers},
      {"tandem.v1.Jobs.Cancel", kChanges},
      {"tandem.v1.Jobs.Checkpoint", kChanges},
      {"tandem.v1.Jobs.Watch", kUsers},
      {"tandem.v1.Jobs.ListReports", kUsers},
      {"tandem.v1.Jobs.Profile", kChanges},
      {"tandem.v1.Jobs.ReadLog", kChanges},
      {"tandem.v1.Jobs.GetServerInfo", {.user = true, .worker = true}},
      {"tandem.v1.Jobs.SignIn", kChanges},
      {"tandem.v1.Workers.Session", kWorkers},
      {"tandem.v1.Workers.Reports", kWorkers},
      {"tandem.v1.Workers.Upload", kWorkers},
  };
  const auto it = rules.find(method);
  return it == rules.end() ? nullptr : &it->second;
}

absl::StatusOr<Caller> Access::Admit(const grpc::ServerContextBase& context, std::string_view method,
                                     const google::protobuf::Message* request) {
  TANDEM_ASSIGN_OR_RETURN(Caller caller, callers_.Of(context));
  TANDEM_RETURN_IF_ERROR(connections_.Claim(caller));
  // People alone have a limit: workers open few streams each, but a whole pool with one certificate opens
  // them at once when the controller returns. The page has its own limit (http/json_api.cc).
  const bool is_person = caller.identity.role == Role::kUser || caller.identity.role == Role::kAdmin;
  if (is_person && !caller.is_page) {
    if (const absl::Duration wait = rate_.Take(tls::ToText(caller.identity)); wait > absl::ZeroDuration()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          tls::ToText(caller.identity), " calls too often; allowed are ", rate_.per_second(),
          " calls a second; try again in ", absl::FormatDuration(absl::Ceil(wait, absl::Milliseconds(1)))));
    }
  }
  if (is_person && open_.NumOf(tls::ToText(caller.identity)) > kMostOpenCalls) {
    return absl::ResourceExhaustedError(
        absl::StrCat(tls::ToText(caller.identity), " has ", kMostOpenCalls,
                     " calls open, the most that one caller may have; end some watches or logs"));
  }
  const MethodRule* rule = RuleOf(method);
  if (rule == nullptr || !May(*rule, caller.identity.role)) {
    std::vector<std::string> who;
    if (rule != nullptr && rule->user) {
      who = {"users", "admins"};
    }
    if (rule != nullptr && rule->worker) {
      who.emplace_back("workers");
    }
    return absl::PermissionDeniedError(
        absl::StrCat(tls::ToText(caller.identity), " may not call ", Short(method), "; allowed: ",
                     who.empty() ? "nobody" : absl::StrJoin(who, ", "), "; use a certificate of that role"));
  }
  if (request != nullptr) {
    TANDEM_RETURN_IF_ERROR(CheckLimits(*request));
  }
  return caller;
}

std::string Access::OwnerOf(const tls::Identity& identity) {
  const bool is_plain = identity.role == Role::kUser && identity.name != "local";
  return is_plain ? identity.name : tls::ToText(identity);  // "admin/alice", "user/local", "local"
}

absl::Status Access::CheckOwner(const Caller& caller, std::string_view method, const v1::Job& job) {
  const tls::Identity& identity = caller.identity;
  if (identity.role != Role::kUser || OwnerOf(identity) == job.owner()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "job ", job.name(), " (", job.id(), ") is ", job.owner(), "'s, and ", tls::ToText(identity),
      " may not call ", Short(method), " for it; allowed: ", job.owner(), ", and admins"));
}

}  // namespace tandem::controller
