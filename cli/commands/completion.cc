// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/completion_script.h"
#include "cli/commands/parse.h"
#include "cli/terminal/error.h"

namespace tandem::cli {

int Completion(Context& context, const CompletionOptions& options) {
  context.console.Write(Stream::kOut, CompletionScript(options.shell, AllCommandWords()));
  return kOk;
}

}  // namespace tandem::cli
