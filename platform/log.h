// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::platform {

enum class LogLevel { kInfo, kWarning, kError };

// The process's log, on standard error: lines "12:00:01 warning worker: text key=value" if standard error is
// a terminal, otherwise one JSON object per line: {ts, level, msg, component, ...fields}. `component`
// ("controller", "worker" or "trainer") is set once at start. Thread-safe; a line is one write(2).
void SetLogComponent(std::string component);
void Log(LogLevel level, std::string_view message,
         std::initializer_list<std::pair<std::string_view, std::string>> fields = {});

}  // namespace tandem::platform
