// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "platform/program_start.h"

namespace tandem::cli {
namespace {

// An unset locale counts as UTF-8: bare containers set none, and their terminals show UTF-8.
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
    // A write then fails with EPIPE, and `run` can still cancel its job and stop its daemons.
    std::signal(SIGPIPE, SIG_IGN);
    // They stay closed if there is no /dev/null.
    static_cast<void>(platform::OpenClosedStandardDescriptors(platform::ClosedDescriptor::kUnusable));
  }

  void Write(Stream stream, absl::string_view text) override {
    const int fd = stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO;
    int& error = stream == Stream::kOut ? out_error_ : err_error_;
    while (!text.empty() && error == 0) {
      const ssize_t written = ::write(fd, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<size_t>(written));
      } else if (errno == EAGAIN) {
        ::usleep(1000);  // another process set the terminal non-blocking
      } else if (errno != EINTR) {
        error = errno;
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
  bool OutClosed() const override { return out_error_ != 0; }
  bool ReaderHasLeft() const override {
    pollfd out = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
    return ::poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
  }
  std::string OutError() const override {
    return out_error_ == 0 || out_error_ == EPIPE ? "" : std::strerror(out_error_);
  }

 private:
  const bool terminal_understands_;
  const bool color_;
  const bool unicode_;
  int out_error_ = 0;
  int err_error_ = 0;
};

}  // namespace

std::unique_ptr<Console> MakeSystemConsole(const Environment& environment) {
  return std::make_unique<SystemConsole>(environment);
}

}  // namespace tandem::cli
