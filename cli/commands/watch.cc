#include "cli/cluster/command_client.h"

namespace tandem::cli {

int Watch(Context& context, const WatchOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  return client == nullptr ? kUsage
                           : WatchToEnd(context, *client, options.job, options.format, /*patient=*/false);
}

}  // namespace tandem::cli
