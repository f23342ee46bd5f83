// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/message_text.h"
#include "cli/watch/watch_frame.h"
#include "cli/watch/watch_view.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(100);

class LiveView : public WatchView {
 public:
  explicit LiveView(Console& console) : console_(console) {}

  void Show(const WatchState& state, const Applied&, absl::Time now) override {
    if (now - drawn_ >= kRedraw || now < drawn_) {
      const TerminalSize size = console_.Size();
      Draw(RenderFrame(state, size, console_.unicode(), now), size);
      drawn_ = now;
    }
  }

  void Finish(const WatchState& state, absl::Time now) override {
    const TerminalSize size = console_.Size();
    std::vector<StyledLine> lines = RenderFrame(state, size, console_.unicode(), now);
    if (state.known && HasEnded(state.job.state())) {
      // The summary replaces the header and the reason.
      lines.clear();
    }
    Draw(lines, size);
    if (state.known && HasEnded(state.job.state())) {
      std::string text;
      for (const StyledLine& line : RenderSummary(state, size.columns)) {
        absl::StrAppend(&text, line.Render(size.columns, console_.color(), console_.unicode()), "\n");
      }
      console_.Write(Stream::kOut, text);
    }
    frame_rows_ = 0;
  }

  void ShowLog(int rank, const std::vector<std::string>& log) override {
    const int columns = console_.Size().columns;
    std::string text = absl::StrCat("  last lines of rank ", rank, ":\n");
    for (const std::string& line : log) {
      absl::StrAppend(&text, "    ", Cut(ReadableLogLine(line), columns - 4, console_.unicode()), "\n");
    }
    console_.Write(Stream::kOut, text);
  }

 private:
  void Draw(const std::vector<StyledLine>& lines, const TerminalSize& size) {
    std::string text = "\r";
    if (frame_rows_ > 0 && (size.columns != size_.columns || size.rows != size_.rows)) {
      // Terminals differ when they are resized: they wrap the lines, cut them, or bring back lines from
      // above, so the row at which the frame begins is unknown.
      text = "\x1b[H\x1b[2J";
    } else if (frame_rows_ > 0) {
      absl::StrAppend(&text, "\x1b[", frame_rows_, "A");
    }
    size_ = size;
    frame_rows_ = static_cast<int>(lines.size());
    for (const StyledLine& line : lines) {
      absl::StrAppend(&text, "\x1b[K", line.Render(size.columns, console_.color(), console_.unicode()), "\n");
    }
    absl::StrAppend(&text, "\x1b[J");
    console_.Write(Stream::kOut, text);  // at once, so that no half frame shows
  }

  Console& console_;
  absl::Time drawn_ = absl::InfinitePast();
  int frame_rows_ = 0;  // of the frame on the terminal, above the cursor
  TerminalSize size_;   // when frame_rows_ were drawn
};

}  // namespace

std::unique_ptr<WatchView> MakeLiveView(Console& console) { return std::make_unique<LiveView>(console); }

}  // namespace tandem::cli
