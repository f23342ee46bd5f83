// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops::cpu {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

// The widest instruction set of this processor for which there are kernels.
InstructionSet BestInstructionSet();

const char* ToText(InstructionSet set);  // "AVX-512"

}  // namespace tandem::ops::cpu
