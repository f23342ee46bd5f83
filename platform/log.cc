// SPDX-License-Identifier: Apache-2.0
#include "platform/log.h"

#include <unistd.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "platform/shown_text.h"

namespace tandem::platform {
namespace {

struct Settings {
  absl::Mutex mu;
  std::string component ABSL_GUARDED_BY(mu);
};

Settings& TheSettings() {
  static Settings* const settings = new Settings;
  return *settings;
}

constexpr const char* kLevelNames[] = {"info", "warning", "error"};  // by LogLevel

std::string Json(const nlohmann::ordered_json& value) {
  // Invalid UTF-8 (a path, a user's text) must not lose the line.
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Escapes characters that could forge a line or move a terminal's cursor.
std::string Printable(std::string_view text) { return Shown(text, std::string::npos); }

std::string Line(bool terminal, const std::string& component, LogLevel level, std::string_view message,
                 std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  const absl::Time now = absl::Now();
  const char* const name = kLevelNames[static_cast<size_t>(level)];
  std::string line;
  if (terminal) {
    line = absl::StrCat(absl::FormatTime("%H:%M:%S", now, absl::LocalTimeZone()), " ", name, " ", component,
                        component.empty() ? "" : ": ", Printable(message));
    for (const auto& [key, value] : fields) {
      absl::StrAppend(&line, " ", absl::string_view(key.data(), key.size()), "=", Printable(value));
    }
  } else {
    nlohmann::ordered_json object;
    object["ts"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone());
    object["level"] = name;
    object["msg"] = message;
    object["component"] = component;
    for (const auto& [key, value] : fields) {
      object[std::string(key)] = value;
    }
    line = Json(object);
  }
  line.push_back('\n');
  return line;
}

}  // namespace

void SetLogComponent(std::string component) {
  Settings& settings = TheSettings();
  const absl::MutexLock lock(&settings.mu);
  settings.component = std::move(component);
}

void Log(LogLevel level, std::string_view message,
         std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  Settings& settings = TheSettings();
  const absl::MutexLock lock(&settings.mu);
  const std::string line = Line(isatty(STDERR_FILENO) == 1, settings.component, level, message, fields);
  // There is no other place to report that the log cannot be written.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tandem::platform
