// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/log_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/terminal/display_text.h"
#include "nlohmann/json.hpp"

namespace tandem::cli {

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
