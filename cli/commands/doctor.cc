// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/cluster/address.h"
#include "cli/cluster/state_folder.h"
#include "cli/commands/commands.h"
#include "cli/doctor/checks.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "nlohmann/json.hpp"
#include "platform/build_info.h"
#include "proto/time.h"

namespace tandem::cli {
namespace {

using Level = Finding::Level;

constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr absl::Duration kMostSkew = absl::Seconds(2);

std::string LevelText(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarn ? "WARN" : "FAIL";
}

std::string DelayText(absl::Duration delay) {
  return delay < absl::Seconds(10) ? StepTimeText(absl::ToDoubleSeconds(delay)) : SpanText(delay);
}

std::vector<Finding> CheckController(Context& context, Client& client) {
  const absl::Time before = context.clock.Now();
  const absl::StatusOr<v1::ServerInfo> server = client.GetServerInfo(kPatience);
  const absl::Time after = context.clock.Now();
  const Address& address = client.address();
  if (!server.ok()) {
    const bool asked = address.source != Address::Source::kDefault;
    return {{asked ? Level::kFail : Level::kOk, "controller",
             asked ? std::string(CallFailure(server.status(), "", address).message())
                   : absl::StrCat("none at ", address.target, "; --addr and TANDEM_ADDR name another")}};
  }
  std::vector<Finding> findings;
  const bool same = server->build() == platform::BuildVersion();
  findings.push_back(
      {same ? Level::kOk : Level::kWarn, "controller",
       absl::StrCat(Escape(server->build()), " at ", address.target, " answers in ",
                    DelayText(after - before),
                    same ? "" : "; this program is of another build: use the one that came with it")});
  if (server->has_now()) {
    const absl::Duration ahead = proto::FromProto(server->now()) - (before + (after - before) / 2);
    const bool apart = absl::AbsDuration(ahead) > kMostSkew + (after - before);
    findings.push_back(
        {apart ? Level::kWarn : Level::kOk, "clocks",
         absl::StrCat(
             "the controller's is ", DelayText(absl::AbsDuration(ahead)),
             ahead < absl::ZeroDuration() ? " behind" : " ahead",
             apart ? "; timestamps in logs will not agree: run a time service on both machines" : "")});
  }
  return findings;
}

Finding CheckPort(const std::string& address, const std::string& whose) {
  const absl::Status free = CanListen(address);
  return {Level::kOk, "port",
          absl::StrCat(address, free.ok() ? " is free for " : " is taken: ",
                       free.ok() ? whose : "a controller runs, or it needs another " + whose)};
}

}  // namespace

Outcome Doctor(Context& context, Client& client, const DoctorOptions& options) {
  std::vector<Finding> findings = CheckPrograms(context.own_folder);
  const auto add = [&findings](const std::vector<Finding>& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  add(CheckGpus(context.own_folder));
  add(CheckLimits());
  add({CheckPort(kDefaultAddress, "--listen"), CheckPort("127.0.0.1:9464", "--metrics-listen")});
  add(CheckController(context, client));
  // The state folder of `up` and `run`, or its nearest ancestor that exists.
  const absl::StatusOr<std::string> root = StateRoot(context.environment);
  add(CheckDisk("state", root.ok() ? ExistingParent(*root) : "/"));
  for (const std::string& folder : options.folders) {
    add(CheckShared(folder));
  }
  const bool failed = std::any_of(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return finding.level == Level::kFail; });
  if (options.format == Format::kJson) {
    for (const Finding& finding : findings) {
      const nlohmann::ordered_json line = {
          {"level", LevelText(finding.level)}, {"subject", finding.subject}, {"text", finding.text}};
      context.Print(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    }
    return failed ? kFailed : kOk;
  }
  const std::string indent(27, ' ');
  for (const Finding& finding : findings) {
    const std::vector<std::string> lines = Wrap(finding.text, context.TableWidth(), indent);
    for (size_t i = 0; i < lines.size(); ++i) {
      context.Print(absl::StrCat(i == 0 ? PadRight(LevelText(finding.level), 6) +
                                              PadRight(finding.subject, 21) + lines[i].substr(indent.size())
                                        : lines[i],
                                 "\n"));
    }
  }
  return failed ? kFailed : kOk;
}

}  // namespace tandem::cli
