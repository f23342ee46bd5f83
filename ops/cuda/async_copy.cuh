// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace tandem::ops::cuda {

// Asynchronous copies from global to shared memory, which a thread commits in groups. After waiting for a
// group, a thread can read its own copies without a barrier.

// Starts a copy of 16 bytes.
__device__ inline void CopyPack(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "l"(global)
               : "memory");
}

// Makes a group of the copies that the thread has started since its last group; there may be none.
__device__ inline void CommitGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of the latest groups are in flight.
template <int kPending>
__device__ void WaitGroup() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tandem::ops::cuda
