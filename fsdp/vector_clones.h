// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks a function that is also compiled for AVX2. The dynamic loader chooses the version. Both give the same
// bits, because files that use it are compiled without contraction into fused multiply-add, and every element
// is computed alone or summed in an order that the source fixes. Sanitizers start before the loader can
// choose, so the mark has no effect with them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TANDEM_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TANDEM_VECTOR_CLONES
#endif
