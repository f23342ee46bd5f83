// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/each_token.h"
#include "ops/cpu/kernels.h"
#include "ops/moves.h"

namespace tandem::ops::cpu {
namespace {

constexpr int64_t kColumnsAtOnce = 4096;  // of a wide row, on the stack

// Calls visit(first column, columns, scaled) for parts of `row`; `scaled` has their elements times the
// factor.
template <typename E, typename Visit>
void ForEachScaledPart(const E* row, int64_t columns, Arithmetic<E> factor, const Visit& visit) {
  Arithmetic<E> scaled[kColumnsAtOnce];
  for (int64_t begin = 0; begin < columns; begin += kColumnsAtOnce) {
    const int64_t count = std::min(kColumnsAtOnce, columns - begin);
    RunKernel(WidenArgs<E>{row + begin, count, scaled});
    for (int64_t i = 0; i < count; ++i) {
      scaled[i] *= factor;
    }
    visit(begin, count, scaled);
  }
}

// sum += factor * row.
template <typename E>
void AddScaled(const E* row, int64_t columns, Arithmetic<E> factor, Arithmetic<E>* sum) {
  if (factor == 1) {
    RunKernel(AccumulateArgs<E>{row, columns, sum});
    return;
  }
  ForEachScaledPart(row, columns, factor, [&](int64_t begin, int64_t count, const Arithmetic<E>* scaled) {
    RunKernel(AddArgs<Arithmetic<E>>{scaled, count, sum + begin});
  });
}

// Returns the first row whose token has that id.
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

// Rounds sums only once, when they are complete. Searches for the tokens of each id, with tokens²
// comparisons, because keeping sums of all rows would take a table of floats.
template <typename E>
void SumAndRound(const EmbeddingBackwardArgs<E>& args) {
  Arithmetic<E> sum[kColumnsAtOnce];
  ForEachToken(args.tokens, args.vocabulary, [&](int64_t first, int64_t id) {
    if (FirstRowOf(args.tokens, id) != first) {
      return;
    }
    for (int64_t begin = 0; begin < args.columns; begin += kColumnsAtOnce) {
      const int64_t count = std::min(kColumnsAtOnce, args.columns - begin);
      E* const out = args.rounded + id * args.columns + begin;
      if (args.add) {
        RunKernel(WidenArgs<E>{out, count, sum});
      } else {
        std::fill_n(sum, count, Arithmetic<E>{0});
      }
      ForEachToken(args.tokens, args.vocabulary, [&](int64_t row, int64_t other) {
        if (other == id) {
          AddScaled(args.grad_output + row * args.columns + begin, count, args.factor, sum);
        }
      });
      RunKernel(NarrowArgs<E>{sum, count, out});
    }
  });
}

}  // namespace

template <typename E>
void Run(const EmbeddingArgs<E>& args) {
  ForEachToken(args.tokens, args.vocabulary, [&](int64_t row, int64_t id) {
    E* const to = args.output + row * args.columns;
    const E* const from = args.weight + id * args.columns;
    if (args.factor == 1) {
      std::memcpy(to, from, args.columns * sizeof(E));
      return;
    }
    ForEachScaledPart(from, args.columns, args.factor,
                      [&](int64_t begin, int64_t count, const Arithmetic<E>* scaled) {
                        RunKernel(NarrowArgs<E>{scaled, count, to + begin});
                      });
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
  ForEachToken(args.tokens, args.vocabulary, [&](int64_t row, int64_t id) {
    AddScaled(args.grad_output + row * args.columns, args.columns, args.factor,
              args.grad_weight + id * args.columns);
  });
}
TANDEM_CPU_KERNEL(EmbeddingBackwardArgs)

}  // namespace tandem::ops::cpu
