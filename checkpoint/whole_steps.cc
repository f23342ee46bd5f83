// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/whole_steps.h"

#include <cstddef>
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

// What a rank sends to the others: one of these, and the digest of the manifest or the error.
constexpr char kAsItSays = 'D';
constexpr char kOtherwise = 'E';

// Whether this rank finds its share of the files with the sizes that the manifest says.
std::string LookAtShare(platform::Files& files, const comm::Communicator& comm, const std::string& path) {
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
  return looked.ok() ? kAsItSays + digest : absl::StrCat(std::string(1, kOtherwise), looked.message());
}

// Why a checkpoint is not known to be whole, of what the ranks have found there; empty: it is.
std::string ReasonOf(const std::vector<std::string>& found) {
  for (size_t rank = 0; rank < found.size(); ++rank) {
    const std::string& own = found[rank];
    const std::string name = rank == 0 ? "" : absl::StrCat("rank ", rank, ": ");
    if (own[0] == kOtherwise) {
      return absl::StrCat(name, own.substr(1));
    }
    if (own != found[0]) {
      return absl::StrCat(name, "it sees another ", kManifestName, " than rank 0");
    }
  }
  return "";
}

}  // namespace

WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const OnLooked& looked) {
  WholeSteps whole;
  for (const int64_t step : ListStepsTogether(files, comm, directory, /*after=*/-1)) {
    // One meeting a step: no rank waits for longer than another looks at a share of one checkpoint.
    const std::string reason =
        ReasonOf(ExchangeTexts(comm, LookAtShare(files, comm, absl::StrCat(directory, "/", StepName(step)))));
    if (reason.empty()) {
      whole.insert(step);
    }
    looked(step, reason);
  }
  return whole;
}

}  // namespace tandem::checkpoint
