// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/text_options.h"

namespace tandem::data {

// The message of the DataError that run() throws; "no error" if it throws none.
template <typename Run>
std::string ErrorOf(const Run& run) {
  try {
    run();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tandem::data
