// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

// Joins chunks into lines: chunks of several ranks arrive in any order, and end anywhere.
class LogPrinter {
 public:
  LogPrinter(Console& console, bool name_ranks)
      : console_(console), name_ranks_(name_ranks), readable_(console.IsTerminal(Stream::kOut)) {}

  void Add(int rank, absl::string_view data) {
    std::string& rest = rest_[rank];
    absl::StrAppend(&rest, data);
    std::string text;
    size_t begin = 0;
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
      const absl::string_view line = absl::string_view(rest).substr(begin, end - begin);
      // A pipe gets the bytes as they were written.
      absl::StrAppend(&text, name_ranks_ ? absl::StrCat("rank ", rank, ": ") : "",
                      readable_ ? ReadableLogLine(line) : line, "\n");
      begin = end + 1;
    }
    rest.erase(0, begin);
    console_.Write(Stream::kOut, text);
  }

  // A last line may lack its newline.
  void Finish() {
    for (const auto& [rank, rest] : rest_) {
      if (!rest.empty()) {
        Add(rank, "\n");
      }
    }
  }

 private:
  Console& console_;
  const bool name_ranks_;
  const bool readable_;
  std::map<int, std::string> rest_;
};

}  // namespace

Outcome Logs(Context& context, Client& client, const LogsOptions& options) {
  v1::LogRequest request;
  request.set_job(options.job);
  if (!options.all) {
    request.set_rank(options.rank);
  }
  request.set_follow(options.follow);
  request.set_tail_lines(options.tail);
  LogPrinter printer(context.console, options.all);
  bool unreadable = false;
  bool any = false;
  const std::string& what = context.what;
  const absl::Status status = client.ReadLog(
      request,
      [&](const v1::LogChunk& chunk) {
        if (!chunk.error().empty()) {
          unreadable = true;
          Note(context.console, absl::StrCat(what, ": rank ", chunk.rank(), ": ", Escape(chunk.error())));
        }
        any = any || !chunk.data().empty() || !chunk.error().empty();
        printer.Add(chunk.rank(), chunk.data());
        return !context.console.OutClosed();
      },
      [&] { return context.console.ReaderHasLeft(); });
  printer.Finish();
  if (context.console.OutClosed() || absl::IsCancelled(status)) {
    return kOutputClosed;
  }
  TANDEM_RETURN_IF_ERROR(status);
  if (!any) {
    const std::string who = options.all ? "no rank has written anything"
                                        : absl::StrCat("rank ", options.rank, " has written nothing");
    Note(context.console, absl::StrCat(what, ": ", who));
  }
  return unreadable ? kFailed : kOk;
}

}  // namespace tandem::cli
