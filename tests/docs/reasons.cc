// SPDX-License-Identifier: Apache-2.0
// Writes docs/reasons.md, the page that says what every reason means, from proto/reasons.h, or compares the
// page with it.
//
//   reasons PAGE [--update]
#include "proto/reasons.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using tandem::proto::Reason;
using tandem::proto::ReasonOf;

void AddSection(ReasonOf of, const std::string& title, const std::string& about, std::string& page) {
  std::vector<Reason> rows;
  std::copy_if(tandem::proto::kReasons.begin(), tandem::proto::kReasons.end(), std::back_inserter(rows),
               [&](const Reason& reason) { return reason.of == of; });
  std::sort(rows.begin(), rows.end(),
            [](const Reason& a, const Reason& b) { return std::string_view(a.code) < b.code; });
  page += "\n## " + title + "\n\n" + about + "\n";
  for (const Reason& row : rows) {
    const std::string failure = row.failure;
    page += "\n### " + std::string(row.code) + "\n\n" + (failure.empty() ? "" : "Class: " + failure + ". ") +
            "Meaning: " + row.meaning + ".\n";
    if (!row.IsOrdinary()) {
      page += "To do: " + std::string(row.remedy) + ".\n";
    }
  }
}

std::string Page() {
  std::string page =
      "# Reasons\n\n"
      "Every reason that `tandem` shows, by where it stands. Written from `proto/reasons.h` by the target\n"
      "`update_reasons`. `tandem describe JOB` shows the text of its own.\n";
  AddSection(ReasonOf::kEnd, "Ends", "Of a job that ended, or of an attempt (`tandem describe`, `cause`).",
             page);
  AddSection(ReasonOf::kWait, "States", "Of a job that waits or runs (`tandem get jobs`).", page);
  AddSection(ReasonOf::kWorker, "Workers", "Of a worker that takes no ranks (`tandem get workers`).", page);
  AddSection(ReasonOf::kSession, "Refused workers", "In the logs of worker and controller.", page);
  AddSection(ReasonOf::kEvent, "Events", "Of events that change no state (`tandem events`).", page);
  return page;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "reasons: give the page\n";
    return 2;
  }
  const std::string page = Page();
  if (argc > 2) {
    return std::ofstream(argv[1]) << page ? 0 : 1;
  }
  std::ifstream file(argv[1]);
  const std::string now(std::istreambuf_iterator<char>(file), {});
  if (now != page) {
    std::cerr << argv[1] << " is not what proto/reasons.h says; build the target update_reasons\n";
    return 1;
  }
  return 0;
}
