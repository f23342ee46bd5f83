// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/context.h"

#include "cli/terminal/error.h"

namespace tandem::cli {

std::unique_ptr<Client> Dial(Context& context) {
  const absl::StatusOr<Address> address = ResolveAddress(context.target, context.environment);
  if (!address.ok()) {
    Note(context.console, address.status().message());
    return nullptr;
  }
  return std::make_unique<Client>(*address);
}

int TableWidth(const Context& context) {
  return context.console.IsTerminal(Stream::kOut) ? context.console.Size().columns : 0;
}

}  // namespace tandem::cli
