// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_error.h"

namespace tandem::comm {

std::string NcclErrorText(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last != nullptr && last[0] != '\0') {
    text += std::string(" (") + last + ")";
  }
  return text;
}

}  // namespace tandem::comm
