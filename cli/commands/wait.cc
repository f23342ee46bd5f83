#include "cli/cluster/command_client.h"

namespace tandem::cli {

int Wait(Context& context, const WaitOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  return client == nullptr ? kUsage
                           : WaitToEnd(context, *client, options.job, options.timeout, /*patient=*/false);
}

}  // namespace tandem::cli
