// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"

namespace tandem::cli {

int Validate(Context& context, const FileOptions& options) {
  // Nothing is dialled, but the address says on whose disks the files are.
  const absl::StatusOr<Address> address = ResolveAddress(context.target, context.environment);
  if (!address.ok()) {
    return Fail(context.console, kUsage, address.status().message());
  }
  if (!LoadJobFile(context, options.file, {.set = options.set}, address->is_here()).has_value()) {
    return kInvalidSpec;
  }
  const std::string shown = options.file == "-" ? "standard input" : Escape(options.file);
  context.console.Write(Stream::kOut, absl::StrCat(shown, ": ok\n"));
  return kOk;
}

}  // namespace tandem::cli
