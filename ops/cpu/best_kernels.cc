// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/best_instruction_set.h"
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {

template <typename E>
Kernels<E> KernelsOf(InstructionSet set) {
  Kernels<E> kernels;
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      avx512::SetRowKernels(kernels);
      avx512::SetAttentionKernels(kernels);
      avx512::SetMixerKernels(kernels);
      avx512::SetDeltaKernels(kernels);
      avx512::SetGateKernels(kernels);
      return kernels;
    case InstructionSet::kAvx2:
      avx2::SetRowKernels(kernels);
      avx2::SetAttentionKernels(kernels);
      avx2::SetMixerKernels(kernels);
      avx2::SetDeltaKernels(kernels);
      avx2::SetGateKernels(kernels);
      return kernels;
#endif
    default:
      baseline::SetRowKernels(kernels);
      baseline::SetAttentionKernels(kernels);
      baseline::SetMixerKernels(kernels);
      baseline::SetDeltaKernels(kernels);
      baseline::SetGateKernels(kernels);
      return kernels;
  }
}

template Kernels<float> KernelsOf(InstructionSet set);
template Kernels<double> KernelsOf(InstructionSet set);
template Kernels<Bf16> KernelsOf(InstructionSet set);

template <>
const Kernels<float>& BestKernels<float>() {
  static const Kernels<float> kernels = KernelsOf<float>(BestInstructionSet());
  return kernels;
}

template <>
const Kernels<double>& BestKernels<double>() {
  static const Kernels<double> kernels = KernelsOf<double>(BestInstructionSet());
  return kernels;
}

template <>
const Kernels<Bf16>& BestKernels<Bf16>() {
  static const Kernels<Bf16> kernels = KernelsOf<Bf16>(BestInstructionSet());
  return kernels;
}

}  // namespace tandem::ops::cpu
