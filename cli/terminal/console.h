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

  // Writes all of `text`, unbuffered. Text for a stream that takes no more is dropped.
  virtual void Write(Stream stream, absl::string_view text) = 0;

  // Whether the stream is a terminal that can move its cursor (TERM=dumb cannot).
  virtual bool IsTerminal(Stream stream) const = 0;

  // The width of the terminal, read again each time.
  virtual TerminalSize Size() const = 0;

  // Whether colours and glyphs outside ASCII are welcome on a terminal.
  virtual bool color() const = 0;
  virtual bool unicode() const = 0;

  // Whether standard output takes no more text, so that whatever streams to it ends.
  virtual bool OutClosed() const = 0;

  // Whether standard output is a pipe that is not read any more. No write need have met that yet: it is for
  // commands that wait for the next line, as `tandem events -f JOB | head -1` does.
  virtual bool ReaderHasLeft() const = 0;

  // Why standard output takes no more ("No space left on device"); empty if its reader closed it (EPIPE).
  virtual std::string OutError() const = 0;
};

// Standard output and error of the process. Ignores SIGPIPE for the process.
std::unique_ptr<Console> MakeSystemConsole(const Environment& environment);

}  // namespace tandem::cli
