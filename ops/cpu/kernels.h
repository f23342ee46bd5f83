// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

namespace tandem::ops::cpu {

using device::Arithmetic;
using device::Bf16;

// Runs the CPU's kernel for the struct of an operation's arguments, which says what it computes. E is float,
// double or, except for routers and their probabilities, Bf16. Matrices are row-major and contiguous.
// Single-threaded, deterministic for given sizes, without state. An index outside its range throws
// std::out_of_range.
//
// A kernel is a function Run(const Args<E>&) in the file of its operation, followed by
// TANDEM_CPU_KERNEL(Args). Kernels that are compiled once for each instruction set (instruction_sets.h) are
// also listed in best_kernels.cc.
template <typename Args>
void RunKernel(const Args& args);

#define TANDEM_CPU_STATISTICS_KERNEL(Args)   \
  template <>                                \
  void RunKernel(const Args<float>& args) {  \
    Run(args);                               \
  }                                          \
  template <>                                \
  void RunKernel(const Args<double>& args) { \
    Run(args);                               \
  }
#define TANDEM_CPU_KERNEL(Args)                    \
  TANDEM_CPU_STATISTICS_KERNEL(Args)               \
  template <>                                      \
  void RunKernel(const Args<device::Bf16>& args) { \
    Run(args);                                     \
  }

// Loops over rows that the kernels of several operations use.

// lse[t] = log(sum(exp(logits[t, :]))).
template <typename E>
struct LogSumExpArgs {
  const E* logits;
  int64_t rows;
  int64_t columns;
  Arithmetic<E>* lse;
};

// out = exp(logits - lse[t]) * scale; may be in place.
template <typename E>
struct SoftmaxArgs {
  const E* logits;
  const Arithmetic<E>* lse;
  double scale;
  int64_t rows;
  int64_t columns;
  E* out;
};

// sum += x.
template <typename E>
struct AccumulateArgs {
  const E* x;
  int64_t elements;
  Arithmetic<E>* sum;
};

// Convert elements to the arithmetic type and back.
template <typename E>
struct WidenArgs {
  const E* x;
  int64_t elements;
  Arithmetic<E>* to;
};
template <typename E>
struct NarrowArgs {
  const Arithmetic<E>* x;
  int64_t elements;
  E* to;
};

}  // namespace tandem::ops::cpu
