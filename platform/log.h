// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::platform {

enum class LogLevel { kInfo, kWarning, kError };

// The process's log, on standard error: one JSON object a line {ts, level, msg, component, ...fields}
// if standard error is not a terminal, "12:00:01 warning worker: text key=value" if it is.
// `component` is set once at start: "controller", "worker", "trainer". Thread-safe; a line is one write.
void SetLogComponent(std::string component);
void Log(LogLevel level, std::string_view message,
         std::initializer_list<std::pair<std::string_view, std::string>> fields = {});

}  // namespace tandem::platform
