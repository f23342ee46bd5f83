// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace tandem::ops::cuda {

// Copies from memory to shared memory that a thread starts and does not wait for, in groups that it closes.
// What a thread has copied itself it reads without a barrier, once its group has come.

// 16 bytes.
__device__ inline void CopyPack(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "l"(global)
               : "memory");
}

__device__ inline void CloseCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kOpen of the closed groups are in flight.
template <int kOpen>
__device__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace tandem::ops::cuda
