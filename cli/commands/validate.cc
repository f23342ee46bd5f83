// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/status_macros.h"

namespace tandem::cli {

Outcome Validate(Context& context, const FileOptions& options) {
  // Nothing is dialled, but the address says on whose disks the files are.
  const absl::StatusOr<Address> address = ResolveAddress(context.target, context.environment);
  if (!address.ok()) {
    return Failure(kUsage, address.status().message());
  }
  TANDEM_RETURN_IF_ERROR(
      LoadJobFile(context, options.file, {.set = options.set}, address->is_here()).status());
  const std::string shown = options.file == "-" ? "standard input" : Escape(options.file);
  context.console.Write(Stream::kOut, absl::StrCat(shown, ": ok\n"));
  return kOk;
}

}  // namespace tandem::cli
