// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/steps_together.h"

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "checkpoint/exchange.h"
#include "checkpoint/folder.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

std::vector<int64_t> ListStepsTogether(platform::Files& files, comm::Communicator& comm,
                                       const std::string& directory, int64_t after) {
  std::vector<int64_t> steps;
  absl::Status listed;
  if (comm.rank() == 0) {
    listed = StatusOfPart([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(steps, ListSteps(files, directory));
      return absl::OkStatus();
    });
  }
  AgreeOnSuccess(comm, listed);
  std::erase_if(steps, [&](int64_t step) { return step <= after; });
  const std::string text = ExchangeTexts(comm, comm.rank() == 0 ? nlohmann::json(steps).dump() : "")[0];
  return nlohmann::json::parse(text).get<std::vector<int64_t>>();
}

}  // namespace tandem::checkpoint
