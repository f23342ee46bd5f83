#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace tandem::cli {
namespace {

// Unset is not ASCII: bare containers set no locale, and their terminals show UTF-8.
bool LocaleIsUtf8(const std::string& locale) {
  const std::string lower = absl::AsciiStrToLower(locale);
  return lower.empty() || absl::StrContains(lower, "utf-8") || absl::StrContains(lower, "utf8");
}

class SystemConsole : public Console {
 public:
  explicit SystemConsole(const Environment& environment)
      : terminal_understands_(environment.term != "dumb"),
        color_(!environment.no_color && environment.term != "dumb"),
        // The Linux console's font lacks the bars.
        unicode_(LocaleIsUtf8(environment.locale) && environment.term != "linux") {
    // A write then says EPIPE, and `run` can still cancel its job and stop its daemons.
    std::signal(SIGPIPE, SIG_IGN);
  }

  void Write(Stream stream, absl::string_view text) override {
    const int fd = stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO;
    bool& closed = stream == Stream::kOut ? out_closed_ : err_closed_;
    while (!text.empty() && !closed) {
      const ssize_t written = ::write(fd, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<size_t>(written));
      } else if (errno == EAGAIN) {
        ::usleep(1000);  // somebody set the terminal non-blocking
      } else if (errno != EINTR) {
        closed = true;
      }
    }
  }

  bool IsTerminal(Stream stream) const override {
    return terminal_understands_ && ::isatty(stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO) == 1;
  }

  TerminalSize Size() const override {
    winsize size = {};
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        return {.columns = size.ws_col, .rows = size.ws_row};
      }
    }
    return {};
  }

  bool color() const override { return color_; }
  bool unicode() const override { return unicode_; }
  bool OutClosed() const override { return out_closed_; }

 private:
  const bool terminal_understands_;
  const bool color_;
  const bool unicode_;
  bool out_closed_ = false;
  bool err_closed_ = false;
};

}  // namespace

std::unique_ptr<Console> MakeSystemConsole(const Environment& environment) {
  return std::make_unique<SystemConsole>(environment);
}

}  // namespace tandem::cli
