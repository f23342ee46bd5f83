// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/remove_together.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"

namespace tandem::checkpoint {
namespace {

constexpr absl::string_view kSeparator("\0", 1);  // the only byte that no path has

// The part of a folder that one rank removes: every size()-th of its sorted names, from the rank-th on.
class RemovalShare {
 public:
  // All arguments must outlive this object.
  RemovalShare(platform::Files& files, const comm::Communicator& comm, const std::string& folder)
      : files_(files), comm_(comm), folder_(folder) {}

  // The first call lists the names, and each later one removes some of them. No rank removes any before all
  // ranks have met, so all list the same names. Names that cannot be listed or removed are left to rank 0.
  RankProgress Advance() {
    if (!listed_) {
      listed_ = true;
      List();
    } else {
      const size_t until = std::min(names_.size(), next_ + kMeetingFiles);
      for (; next_ < until; ++next_) {
        files_.RemoveAll(absl::StrCat(folder_, "/", names_[next_])).IgnoreError();
      }
    }
    return {.done = next_ == names_.size(),
            .amount = static_cast<int64_t>(next_),
            .total = static_cast<int64_t>(names_.size())};
  }

 private:
  void List() {
    // If the folder is a link, rank 0 removes the link alone.
    std::error_code error;
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(folder_, error))) {
      return;
    }
    const absl::StatusOr<std::vector<std::string>> names = files_.List(folder_);
    if (!names.ok()) {
      return;
    }
    const auto ranks = static_cast<size_t>(comm_.size());
    for (auto i = static_cast<size_t>(comm_.rank()); i < names->size(); i += ranks) {
      names_.push_back((*names)[i]);
    }
  }

  platform::Files& files_;
  const comm::Communicator& comm_;
  const std::string& folder_;
  bool listed_ = false;
  std::vector<std::string> names_;
  size_t next_ = 0;
};

}  // namespace

std::vector<std::string> RemoveTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::vector<std::string>& doomed,
                                        const OnWorkProgress& on_progress) {
  const std::string text = TextOfRankZero(comm, absl::StrJoin(doomed, kSeparator));
  const std::vector<std::string> paths = absl::StrSplit(text, kSeparator, absl::SkipEmpty());
  std::vector<std::string> not_removed;
  for (const std::string& path : paths) {
    RemovalShare share(files, comm, path);
    // If a rank throws (for lack of memory), all leave the rest to rank 0.
    WorkTogether(
        comm, path, [&] { return share.Advance(); }, on_progress)
        .IgnoreError();
    if (comm.rank() != 0) {
      continue;
    }
    const absl::Status removed = StatusOfPart([&] { return files.RemoveAll(path); });
    if (!removed.ok()) {
      not_removed.emplace_back(removed.message());
    }
  }
  return not_removed;
}

}  // namespace tandem::checkpoint
