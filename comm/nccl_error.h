// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

namespace tandem::comm {

// What NCCL says of `result`, and of what happened last in `comm` (null: in none).
std::string NcclErrorText(ncclResult_t result, ncclComm_t comm);

}  // namespace tandem::comm
