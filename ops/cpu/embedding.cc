// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/each_token.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/run.h"

namespace tandem::ops::cpu {
namespace {

constexpr int64_t kColumnsAtOnce = 4096;  // of the sum of one id's rows, on the stack

// The first row whose token has that id.
int64_t FirstRowOf(const Tokens& tokens, int64_t id) {
  for (int64_t sequence = 0; sequence < tokens.sequences; ++sequence) {
    const int64_t* const begin = tokens.ids + sequence * tokens.stride;
    const int64_t* const found = std::find(begin, begin + tokens.length, id);
    if (found != begin + tokens.length) {
      return sequence * tokens.length + (found - begin);
    }
  }
  return tokens.sequences * tokens.length;
}

// Sums that are rounded to the elements of the table once, when they are complete. The tokens of each id are
// looked for, which takes tokens² comparisons, because a sum of every row would take a table of floats.
template <typename E>
void SumAndRound(const EmbeddingBackwardArgs<E>& args) {
  const Kernels<E>& kernels = BestKernels<E>();
  Arithmetic<E> sum[kColumnsAtOnce];
  ForEachToken(args.tokens, args.vocabulary, [&](int64_t first, int64_t id) {
    if (FirstRowOf(args.tokens, id) != first) {
      return;
    }
    for (int64_t begin = 0; begin < args.columns; begin += kColumnsAtOnce) {
      const int64_t count = std::min(kColumnsAtOnce, args.columns - begin);
      E* const out = args.rounded + id * args.columns + begin;
      if (args.add) {
        kernels.widen(out, count, sum);
      } else {
        std::fill_n(sum, count, Arithmetic<E>{0});
      }
      ForEachToken(args.tokens, args.vocabulary, [&](int64_t row, int64_t other) {
        if (other == id) {
          kernels.accumulate(args.grad_output + row * args.columns + begin, count, sum);
        }
      });
      kernels.narrow(sum, count, out);
    }
  });
}

}  // namespace

template <typename E>
void Run(const EmbeddingArgs<E>& args) {
  ForEachToken(args.tokens, args.vocabulary, [&](int64_t row, int64_t id) {
    std::memcpy(args.output + row * args.columns, args.weight + id * args.columns, args.columns * sizeof(E));
  });
}
TANDEM_CPU_KERNEL(EmbeddingArgs)

template <typename E>
void Run(const EmbeddingBackwardArgs<E>& args) {
  const size_t elements = args.vocabulary * args.columns;
  if (args.rounded != nullptr) {
    if (!args.add) {
      std::memset(args.rounded, 0, elements * sizeof(E));
    }
    SumAndRound(args);
    return;
  }
  if (!args.add) {
    std::memset(args.grad_weight, 0, elements * sizeof(Arithmetic<E>));
  }
  const Kernels<E>& kernels = BestKernels<E>();
  ForEachToken(args.tokens, args.vocabulary, [&](int64_t row, int64_t id) {
    kernels.accumulate(args.grad_output + row * args.columns, args.columns,
                       args.grad_weight + id * args.columns);
  });
}
TANDEM_CPU_KERNEL(EmbeddingBackwardArgs)

}  // namespace tandem::ops::cpu
