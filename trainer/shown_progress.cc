// SPDX-License-Identifier: Apache-2.0
#include "trainer/shown_progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"

namespace tandem::trainer {

ShownProgress::ShownProgress(bool logs, std::string what, std::string unit, std::function<void()> moved)
    : logs_(logs), what_(std::move(what)), unit_(std::move(unit)), moved_(std::move(moved)) {}

void ShownProgress::operator()(const checkpoint::WorkProgress& progress) {
  moved_();
  if (progress.path != path_) {
    path_ = progress.path;
    tenth_ = 0;
  }
  const auto tenth = static_cast<int64_t>(10.0 * static_cast<double>(progress.done) /
                                          static_cast<double>(std::max<int64_t>(1, progress.total)));
  if (!logs_ || tenth == tenth_ || (tenth_ == 0 && progress.done == progress.total)) {
    return;
  }
  tenth_ = tenth;
  platform::Log(platform::LogLevel::kInfo, what_,
                {{"path", progress.path},
                 {"percent", absl::StrCat(10 * tenth)},
                 {unit_, absl::StrCat(progress.total)}});
}

}  // namespace tandem::trainer
