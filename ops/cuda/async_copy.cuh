// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace tandem::ops::cuda {

// Copies from memory to shared memory that a thread starts and does not wait for, in groups that it commits.
// What a thread has copied itself it reads without a barrier, once it has waited for the group.

// 16 bytes.
__device__ inline void CopyPack(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "l"(global)
               : "memory");
}

// What the thread has copied since its last group, which may be nothing, is a group.
__device__ inline void CommitGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of the latest groups are in flight.
template <int kPending>
__device__ void WaitGroup() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tandem::ops::cuda
