// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cpu/best_instruction_set.h"
#include "ops/cpu/kernels.h"

// The functions that rows.cc, attention.cc, mixer.cc, gated_delta.cc and gates.cc provide in their build for
// each instruction set.
namespace tandem::ops::cpu {

namespace baseline {
template <typename T>
void SetRowKernels(Kernels<T>& kernels);
template <typename T>
void SetAttentionKernels(Kernels<T>& kernels);
template <typename T>
void SetMixerKernels(Kernels<T>& kernels);
template <typename T>
void SetDeltaKernels(Kernels<T>& kernels);
template <typename T>
void SetGateKernels(Kernels<T>& kernels);
}  // namespace baseline

namespace avx2 {
template <typename T>
void SetRowKernels(Kernels<T>& kernels);
template <typename T>
void SetAttentionKernels(Kernels<T>& kernels);
template <typename T>
void SetMixerKernels(Kernels<T>& kernels);
template <typename T>
void SetDeltaKernels(Kernels<T>& kernels);
template <typename T>
void SetGateKernels(Kernels<T>& kernels);
}  // namespace avx2

namespace avx512 {
template <typename T>
void SetRowKernels(Kernels<T>& kernels);
template <typename T>
void SetAttentionKernels(Kernels<T>& kernels);
template <typename T>
void SetMixerKernels(Kernels<T>& kernels);
template <typename T>
void SetDeltaKernels(Kernels<T>& kernels);
template <typename T>
void SetGateKernels(Kernels<T>& kernels);
}  // namespace avx512

// The kernels of one build. The processor must have its instructions.
template <typename E>
Kernels<E> KernelsOf(InstructionSet set);

}  // namespace tandem::ops::cpu
