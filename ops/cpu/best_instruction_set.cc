// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/best_instruction_set.h"

namespace tandem::ops::cpu {

InstructionSet BestInstructionSet() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return InstructionSet::kAvx2;
  }
#endif
  return InstructionSet::kBaseline;
}

const char* ToText(InstructionSet set) {
  static constexpr const char* kTexts[] = {"baseline instructions", "AVX2", "AVX-512"};
  return kTexts[static_cast<int>(set)];
}

}  // namespace tandem::ops::cpu
