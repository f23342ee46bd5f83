#include "cli/terminal/progress_text.h"

#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"
#include "proto/time.h"

namespace tandem::cli {

std::string BehindText(const v1::Progress& progress) {
  const std::string where = Escape(progress.whereabouts());
  return absl::StrCat("rank ", progress.rank(), " on worker ", Escape(progress.worker()),
                      progress.stopped() ? " is stopped, by a signal or a debugger" : " is behind",
                      where.empty() ? "" : ", ", where);
}

std::string ProgressText(const v1::Progress& progress) {
  const std::string age = SpanText(proto::FromProto(progress.age()));
  return progress.stalled() ? absl::StrCat("none for ", age, ": ", BehindText(progress))
                            : absl::StrCat(age, " ago");
}

}  // namespace tandem::cli
