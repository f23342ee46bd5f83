// SPDX-License-Identifier: Apache-2.0
#pragma once

// A function marked so is compiled for AVX2 too, and the loader picks. Results are the same bits: the files
// that use it are compiled without contraction into fused multiply-add, and every element is computed alone
// or summed in an order that the source gives. Sanitizers run before the loader can pick.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TANDEM_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TANDEM_VECTOR_CLONES
#endif
