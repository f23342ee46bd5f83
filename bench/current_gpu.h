// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::bench {

// What a result of a bench that runs on the current GPU is measured on, as CUDA names it ("NVIDIA H200"): of
// several kinds in a machine nvidia-smi may list another first.
std::string CurrentGpuName();

}  // namespace tandem::bench
