// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Macros that return an error to the caller unchanged, in functions that return absl::Status or
// absl::StatusOr. Newer versions of Abseil than ours have the same macros.

// TANDEM_RETURN_IF_ERROR(files.Remove(path));
#define TANDEM_RETURN_IF_ERROR(...)                                        \
  do {                                                                     \
    if (absl::Status tandem_status = (__VA_ARGS__); !tandem_status.ok()) { \
      return tandem_status;                                                \
    }                                                                      \
  } while (false)

// TANDEM_ASSIGN_OR_RETURN(const std::string text, files.Read(path));
// The first argument must have no comma outside of parentheses. The macro is several statements, so an `if`
// around it needs braces.
#define TANDEM_ASSIGN_OR_RETURN(variable, ...) \
  TANDEM_ASSIGN_OR_RETURN_IN(TANDEM_STATUS_NAME(__LINE__), variable, __VA_ARGS__)

#define TANDEM_ASSIGN_OR_RETURN_IN(result, variable, ...) \
  auto result = (__VA_ARGS__);                            \
  if (!result.ok()) {                                     \
    return std::move(result).status();                    \
  }                                                       \
  variable = *std::move(result)

#define TANDEM_STATUS_NAME(line) TANDEM_STATUS_NAME_OF(line)
#define TANDEM_STATUS_NAME_OF(line) tandem_result_##line
