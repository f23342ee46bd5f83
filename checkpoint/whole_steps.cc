// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/whole_steps.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/exchange.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// The digest of the manifest, where this rank finds its share of the files with the sizes that it says; else
// empty.
std::string DigestOfShare(platform::Files& files, const comm::Communicator& comm, const std::string& path) {
  std::string digest;
  const absl::Status looked = StatusOfPart([&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const Manifest manifest, ReadFolderManifest(files, path));
    const fsdp::Range share = FilesOfRank(manifest.files, comm.rank(), comm.size());
    for (int64_t file = share.begin; file < share.end; ++file) {
      TANDEM_RETURN_IF_ERROR(CheckSize(files, path, manifest.files[static_cast<size_t>(file)]));
    }
    digest = manifest.digest;
    return absl::OkStatus();
  });
  return looked.ok() ? digest : "";  // whatever the reason, it is not known to be whole
}

}  // namespace

WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const std::function<void()>& looked) {
  WholeSteps whole;
  for (const int64_t step : ListStepsTogether(files, comm, directory, /*after=*/-1)) {
    // One meeting a step: no rank waits for longer than another looks at a share of one checkpoint.
    const std::vector<std::string> digests =
        ExchangeTexts(comm, DigestOfShare(files, comm, absl::StrCat(directory, "/", StepName(step))));
    if (!digests[0].empty() && std::count(digests.begin(), digests.end(), digests[0]) == comm.size()) {
      whole.insert(step);
    }
    looked();
  }
  return whole;
}

}  // namespace tandem::checkpoint
