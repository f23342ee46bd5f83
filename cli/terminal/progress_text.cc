#include "cli/terminal/progress_text.h"

#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"

namespace tandem::cli {

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

std::string BehindText(const v1::Progress& progress) {
  const std::string where = Escape(progress.whereabouts());
  return absl::StrCat("rank ", progress.rank(), " on worker ", Escape(progress.worker()),
                      progress.stopped() ? " is stopped, by a signal or a debugger" : " is behind",
                      where.empty() ? "" : ", ", where);
}

std::string ProgressText(const v1::Progress& progress) {
  const std::string age = SpanText(ToDuration(progress.age()));
  return progress.stalled() ? absl::StrCat("none for ", age, ": ", BehindText(progress))
                            : absl::StrCat(age, " ago");
}

}  // namespace tandem::cli
