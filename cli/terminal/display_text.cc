// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/display_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "platform/shown_text.h"

namespace tandem::cli {
namespace {

struct CodePoint {
  char32_t value = 0;  // the first byte if the text is not valid UTF-8
  size_t bytes = 1;
  bool valid = false;
};

CodePoint Decode(absl::string_view text) {
  char32_t value = static_cast<uint8_t>(text[0]);
  const int bytes = platform::DecodeUtf8({text.data(), text.size()}, 0, value);
  return {value, static_cast<size_t>(std::max(bytes, 1)), bytes > 0};
}

int Columns(char32_t value) {
  if (value >= 0x300 && value < 0x370) {
    return 0;  // combining
  }
  const bool wide = (value >= 0x1100 && value < 0x1160) || (value >= 0x2E80 && value < 0xA4D0) ||
                    (value >= 0xAC00 && value < 0xD7A4) || (value >= 0xF900 && value < 0xFB00) ||
                    (value >= 0xFE30 && value < 0xFE70) || (value >= 0xFF00 && value < 0xFF61) ||
                    (value >= 0x1F300 && value < 0x1FB00) || (value >= 0x20000 && value < 0x3FFFE);
  return wide ? 2 : 1;
}

absl::string_view Ellipsis(bool unicode) { return unicode ? "…" : "~"; }

}  // namespace

std::string Escape(absl::string_view text) {
  return platform::Shown({text.data(), text.size()}, std::string::npos);
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    width += Columns(point.value);
    text.remove_prefix(point.bytes);
  }
  return width;
}

std::string Cut(absl::string_view text, int width, bool unicode) {
  if (DisplayWidth(text) <= width) {
    return std::string(text);
  }
  if (width <= 0) {
    return "";
  }
  std::string out;
  int used = 0;
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    used += Columns(point.value);
    if (used > width - 1) {
      break;
    }
    absl::StrAppend(&out, text.substr(0, point.bytes));
    text.remove_prefix(point.bytes);
  }
  absl::StrAppend(&out, Ellipsis(unicode));
  return out;
}

std::string CutLeft(absl::string_view text, int width, bool unicode) {
  int excess = DisplayWidth(text) - width;
  if (excess <= 0) {
    return std::string(text);
  }
  if (width <= 0) {
    return "";
  }
  ++excess;  // the ellipsis
  while (!text.empty() && excess > 0) {
    const CodePoint point = Decode(text);
    excess -= Columns(point.value);
    text.remove_prefix(point.bytes);
  }
  return absl::StrCat(Ellipsis(unicode), text);
}

std::string PadRight(absl::string_view text, int width) {
  std::string out(text);
  out.append(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
  return out;
}

std::string PadLeft(absl::string_view text, int width) {
  std::string out(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
  absl::StrAppend(&out, text);
  return out;
}

std::vector<std::string> Wrap(absl::string_view text, int width, absl::string_view indent) {
  const int room = std::max(8, width - DisplayWidth(indent));
  std::vector<std::string> lines;
  std::string line;
  int used = 0;
  const auto flush = [&] {
    if (!line.empty()) {
      lines.push_back(std::string(indent) + line);
      line.clear();
      used = 0;
    }
  };
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int columns = DisplayWidth(word);
    if (width > 0 && used > 0 && used + 1 + columns > room) {
      flush();
    }
    while (width > 0 && columns > room) {
      size_t bytes = 0;
      for (int taken = 0; taken < room;) {
        const CodePoint point = Decode(word.substr(bytes));
        taken += Columns(point.value);
        if (taken <= room) {
          bytes += point.bytes;
        }
      }
      line = std::string(word.substr(0, bytes));
      flush();
      word.remove_prefix(bytes);
      columns = DisplayWidth(word);
    }
    if (!word.empty()) {
      line += used > 0 ? " " : "";
      used += (used > 0 ? 1 : 0) + columns;
      absl::StrAppend(&line, word);
    }
  }
  flush();
  return lines;
}

std::string ReadableLogLine(absl::string_view line) {
  if (line.empty() || line.front() != '{') {
    return Escape(line);
  }
  using Json = nlohmann::ordered_json;
  const Json json = Json::parse(line.begin(), line.end(), /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("msg") || !json["msg"].is_string() || !json.contains("ts") ||
      !json["ts"].is_string()) {
    return Escape(line);
  }
  const auto text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>()
                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  // 2024-05-01T12:00:01.123456Z
  const std::string time = text(json["ts"]);
  std::string out = time.size() >= 19 && time[10] == 'T' ? time.substr(11, 8) : time;
  if (json.contains("level")) {
    absl::StrAppend(&out, " ", text(json["level"]));
  }
  if (json.contains("component")) {
    absl::StrAppend(&out, " ", text(json["component"]), ":");
  }
  absl::StrAppend(&out, " ", text(json["msg"]));
  for (const auto& [key, value] : json.items()) {
    if (key != "ts" && key != "level" && key != "component" && key != "msg") {
      absl::StrAppend(&out, "  ", key, "=", text(value));
    }
  }
  return Escape(out);
}

}  // namespace tandem::cli
