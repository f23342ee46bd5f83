// SPDX-License-Identifier: Apache-2.0
// Gates of attentions and of tokens. Compiled once per instruction set (CMakeLists.txt).
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/simd.h"
#include "ops/output_gate.h"
#include "ops/token_gate.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

template <typename E>
void Run(const OutputGateArgs<E>& args) {
  using T = Arithmetic<E>;
  const E* context = args.context;
  E* gated = args.gated;
  for (int64_t token = 0; token < args.tokens; ++token) {
    for (int64_t head = 0; head < args.heads; ++head, context += args.head_dim, gated += args.head_dim) {
      const E* const gate = args.qkv + args.GateOf(token, head);
      for (int64_t i = 0; i < args.head_dim; i += kStep<T>) {
        StoreOfRow(gated, i, args.head_dim,
                   LoadOfRow(context, i, args.head_dim) * Sigmoid<T>(LoadOfRow(gate, i, args.head_dim)));
      }
    }
  }
}

template <typename E>
void Run(const OutputGateBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const OutputGateArgs<E>& in = args.forward;
  const int64_t head_dim = in.head_dim;
  int64_t begin = 0;
  for (int64_t token = 0; token < in.tokens; ++token) {
    for (int64_t head = 0; head < in.heads; ++head, begin += head_dim) {
      const int64_t gate = in.GateOf(token, head);
      for (int64_t i = 0; i < head_dim; i += kStep<T>) {
        const Vector<T> sigmoid = Sigmoid<T>(LoadOfRow(in.qkv + gate, i, head_dim));
        const Vector<T> grad = LoadOfRow(args.grad_gated + begin, i, head_dim);
        const Vector<T> gated = LoadOfRow(in.context + begin, i, head_dim) * sigmoid;
        StoreOfRow(in.gated + begin, i, head_dim, gated);
        StoreOfRow(args.grad_context + begin, i, head_dim, grad * sigmoid);
        StoreOfRow(args.grad_qkv + gate, i, head_dim, grad * gated * (static_cast<T>(1) - sigmoid));
      }
    }
  }
}

template <typename E>
void Run(const TokenGateArgs<E>& args) {
  using T = Arithmetic<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const E* const x = args.x + row * args.columns;
    Vector<T> dot = {};
    for (int64_t i = 0; i < args.columns; i += kStep<T>) {
      dot += LoadOfRow(x, i, args.columns) * LoadOfRow(args.weight, i, args.columns);
    }
    args.gates[row] = Sigmoid<T>(Vector<T>{} + Sum<T>(dot))[0];
  }
}

template <typename E>
void Run(const TokenGateBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const TokenGateArgs<E>& in = args.forward;
  const int64_t columns = in.columns;
  T* const grad_weight = args.grad_weight;
  if (grad_weight != nullptr && !args.add_weight) {
    for (int64_t i = 0; i < columns; ++i) {
      grad_weight[i] = 0;
    }
  }
  for (int64_t row = 0; row < in.rows; ++row) {
    const E* const x = in.x + row * columns;
    E* const grad_x = args.grad_x + row * columns;
    const T grad = args.grad_gates[row] * in.gates[row] * (1 - in.gates[row]);
    for (int64_t i = 0; i < columns; i += kStep<T>) {
      StoreOfRow(grad_x, i, columns, LoadOfRow(grad_x, i, columns) + LoadOfRow(in.weight, i, columns) * grad);
      if (grad_weight != nullptr) {
        StoreOfRow(grad_weight, i, columns,
                   LoadOfRow(grad_weight, i, columns) + LoadOfRow(x, i, columns) * grad);
      }
    }
  }
}

}  // namespace

TANDEM_CPU_KERNEL(OutputGateArgs)
TANDEM_CPU_KERNEL(OutputGateBackwardArgs)
TANDEM_CPU_KERNEL(TokenGateArgs)
TANDEM_CPU_KERNEL(TokenGateBackwardArgs)

}  // namespace tandem::ops::cpu::TANDEM_ISA
