// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "cli/cluster/client.h"
#include "cli/terminal/console.h"
#include "cli/terminal/environment.h"
#include "platform/clock.h"

namespace tandem::cli {

// What every command gets. Commands print, and return the exit code (terminal/error.h).
struct Context {
  Console& console;
  const platform::Clock& clock;
  Environment environment;
  TargetFlags target;      // of the controller
  std::string own_folder;  // where the tandem binary lies, and its daemons
  absl::TimeZone zone = absl::LocalTimeZone();
};

// The client of the controller that a command talks to; where the address is bad, the error is printed and
// there is none: exit with kUsage.
std::unique_ptr<Client> Dial(Context& context);

// The width that tables may use: that of the terminal, 0 (no limit) where standard output is none.
int TableWidth(const Context& context);

}  // namespace tandem::cli
