// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cpu/best_instruction_set.h"
#include "ops/cpu/kernels.h"

// The kernels of rows.cc, attention.cc, mixer.cc, gated_delta.cc and gates.cc, which are built once for each
// instruction set.
namespace tandem::ops::cpu {

namespace baseline {
template <typename Args>
void RunKernel(const Args& args);
}  // namespace baseline

namespace avx2 {
template <typename Args>
void RunKernel(const Args& args);
}  // namespace avx2

namespace avx512 {
template <typename Args>
void RunKernel(const Args& args);
}  // namespace avx512

// The kernel of one build. The processor must have its instructions.
template <typename Args>
auto KernelOf(InstructionSet set) -> void (*)(const Args& args) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return avx512::RunKernel<Args>;
    case InstructionSet::kAvx2:
      return avx2::RunKernel<Args>;
#endif
    default:
      return baseline::RunKernel<Args>;
  }
}

}  // namespace tandem::ops::cpu
