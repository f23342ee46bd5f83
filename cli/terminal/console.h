// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "cli/terminal/environment.h"

namespace tandem::cli {

enum class Stream { kOut, kErr };

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// The output of a command. Standard output carries only data; everything for people goes to standard error,
// except what they asked to watch. Not thread-safe.
class Console {
 public:
  virtual ~Console() = default;

  // Writes all of `text`, unbuffered. Once a write to the stream has failed, drops the text.
  virtual void Write(Stream stream, absl::string_view text) = 0;

  // Whether the stream is a terminal with a movable cursor (TERM=dumb has none).
  virtual bool IsTerminal(Stream stream) const = 0;

  // Returns the size of the terminal, read again each time.
  virtual TerminalSize Size() const = 0;

  // Whether a terminal is to get colours, and characters beyond ASCII.
  virtual bool color() const = 0;
  virtual bool unicode() const = 0;

  // Whether a write to standard output has failed, so that commands which write more of it should end.
  virtual bool OutClosed() const = 0;

  // Whether standard output is a pipe that its reader has closed, even if no write has failed yet: a command
  // that waits for its next line is to end then, as in `tandem events -f JOB | head -1`.
  virtual bool ReaderHasLeft() const = 0;

  // Why a write to standard output failed: "No space left on device"; empty if its reader closed it (EPIPE).
  virtual std::string OutError() const = 0;
};

// Returns the standard output and error of the process. Ignores SIGPIPE for the whole process.
std::unique_ptr<Console> MakeSystemConsole(const Environment& environment);

}  // namespace tandem::cli
