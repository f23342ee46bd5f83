// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "cli/terminal/console.h"

namespace tandem::cli {

// Keeps what is written. A terminal of a given size, or none.
class RecordedConsole : public Console {
 public:
  void Write(Stream stream, absl::string_view text) override {
    std::string& target = stream == Stream::kOut ? out : err;
    target.append(text.data(), text.size());
  }
  bool IsTerminal(Stream) const override { return terminal; }
  TerminalSize Size() const override { return size; }
  bool color() const override { return use_color; }
  bool unicode() const override { return true; }
  bool OutClosed() const override { return out_closed; }
  bool ReaderHasLeft() const override { return out_closed; }
  std::string OutError() const override { return ""; }

  std::string out;
  std::string err;
  TerminalSize size;
  bool terminal = false;
  bool use_color = false;
  bool out_closed = false;
};

}  // namespace tandem::cli
