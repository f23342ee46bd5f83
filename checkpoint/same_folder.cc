#include "checkpoint/same_folder.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gather_text.h"
#include "comm/communicator.h"

namespace tandem::checkpoint {
namespace {

// A network file system may show a new file late, so this looks again until the deadline.
bool Sees(platform::Files& files, const std::string& path, const std::string& token, absl::Time deadline) {
  while (true) {
    const absl::StatusOr<std::string> content = files.Read(path);
    if (content.ok() && *content == token) {
      return true;
    }
    if (absl::Now() >= deadline) {
      return false;
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace

void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                     platform::Random& random, absl::Duration timeout) {
  // "token" or "!reason" from rank 0.
  std::string told;
  if (comm.rank() == 0) {
    told = random.HexId(32);
    absl::Status status = files.CreateFolders(directory);
    if (status.ok()) {
      status = files.Write(absl::StrCat(directory, "/.same-folder-", told), told);
    }
    if (!status.ok()) {
      told = absl::StrCat("!", status.message());
    }
  }
  const std::string token = GatherTexts(comm, told)[0];
  if (token[0] == '!') {
    throw CheckpointError(
        absl::StrCat("checkpoint.directory: ", directory, " cannot be written: ", token.substr(1)));
  }
  const std::string path = absl::StrCat(directory, "/.same-folder-", token);
  const bool sees = Sees(files, path, token, absl::Now() + timeout);
  const std::vector<std::string> answers = GatherTexts(comm, sees ? "yes" : "no");
  if (comm.rank() == 0) {
    files.RemoveAll(path).IgnoreError();  // a leftover of 32 bytes does no harm
  }
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (answers[rank] != "yes") {
      throw CheckpointError(absl::StrCat("checkpoint.directory: ", directory,
                                         " is not the same folder on rank ", rank,
                                         "; use a folder that all workers share"));
    }
  }
}

}  // namespace tandem::checkpoint
