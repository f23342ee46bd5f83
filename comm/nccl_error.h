// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

namespace tandem::comm {

// NCCL's text for `result` and for the last error of `comm` (may be null).
inline std::string NcclErrorText(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last != nullptr && last[0] != '\0') {
    text += std::string(" (") + last + ")";
  }
  return text;
}

}  // namespace tandem::comm
