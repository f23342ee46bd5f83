// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

namespace tandem::comm {

// NCCL's text for `result` and for the last error of `comm` (may be null).
std::string NcclErrorText(ncclResult_t result, ncclComm_t comm);

}  // namespace tandem::comm
