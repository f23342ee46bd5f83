// SPDX-License-Identifier: Apache-2.0
// The loops over rows except those of attention. Compiled once per instruction set (CMakeLists.txt).
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/simd.h"
#include "ops/moves.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/squared_relu.h"
#include "ops/swiglu.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

template <typename T>
constexpr int64_t kLanes = Lanes<T>::kCount;

template <typename E, typename T = Arithmetic<E>>
T SumOfSquares(const E* x, int64_t columns) {
  Vector<T> even = {};
  Vector<T> odd = {};
  int64_t i = 0;
  for (; i + 2 * kLanes<T> <= columns; i += 2 * kLanes<T>) {
    const Vector<T> a = Load(x + i);
    const Vector<T> b = Load(x + i + kLanes<T>);
    even += a * a;
    odd += b * b;
  }
  for (; i < columns; i += kLanes<T>) {
    const Vector<T> a = LoadOfRow(x, i, columns);
    even += a * a;
  }
  return Sum<T>(even + odd);
}

template <typename E, typename T = Arithmetic<E>>
inline T ReciprocalRms(const E* x, double epsilon, int64_t columns) {
  return 1 / SquareRoot(SumOfSquares(x, columns) / static_cast<T>(columns) + static_cast<T>(epsilon));
}

}  // namespace

template <typename E>
void Run(const RmsNormArgs<E>& args) {
  using T = Arithmetic<E>;
  const auto [x, weight, norm, rows, columns, y] = args;
  const T added = static_cast<T>(norm.added);
  for (int64_t row = 0; row < rows; ++row) {
    const E* const in = x + row * columns;
    E* const out = y + row * columns;
    const T r = ReciprocalRms(in, norm.epsilon, columns);
    for (int64_t i = 0; i < columns; i += kLanes<T>) {
      StoreOfRow(out, i, columns, LoadOfRow(in, i, columns) * r * (LoadOfRow(weight, i, columns) + added));
    }
  }
}

// With r = 1 / rms(x) and g = grad_y * (weight + added): grad_x = r * (g - x * r^2 * mean(g * x)).
template <typename E>
void Run(const RmsNormBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns;
  const E* const weight = args.weight;
  const T added = static_cast<T>(args.norm.added);
  T* const grad_weight = args.grad_weight;
  if (!args.add_weight) {
    for (int64_t i = 0; i < columns; ++i) {
      grad_weight[i] = 0;
    }
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    const E* const x = args.x + row * columns;
    const E* const grad_y = args.grad_y + row * columns;
    const E* const residual = args.residual == nullptr ? nullptr : args.residual + row * columns;
    E* const grad_x = args.grad_x + row * columns;
    const T r = ReciprocalRms(x, args.norm.epsilon, columns);
    Vector<T> dot = {};
    for (int64_t i = 0; i < columns; i += kLanes<T>) {
      const Vector<T> gx = LoadOfRow(grad_y, i, columns) * LoadOfRow(x, i, columns);
      StoreOfRow(grad_weight, i, columns, LoadOfRow(grad_weight, i, columns) + gx * r);
      dot += gx * (LoadOfRow(weight, i, columns) + added);
    }
    const T shrink = r * r * r * Sum<T>(dot) / static_cast<T>(columns);
    for (int64_t i = 0; i < columns; i += kLanes<T>) {
      Vector<T> gradient = LoadOfRow(grad_y, i, columns) * (LoadOfRow(weight, i, columns) + added) * r -
                           LoadOfRow(x, i, columns) * shrink;
      if (residual != nullptr) {
        gradient += LoadOfRow(residual, i, columns);
      }
      StoreOfRow(grad_x, i, columns, args.add_x ? LoadOfRow(grad_x, i, columns) + gradient : gradient);
    }
  }
}

template <typename E>
void Run(const RopeArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t half = args.pairs;
  const T sign = args.sign;
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* const cosine = args.cosines + row % args.length * half;
    const T* const sine = args.sines + row % args.length * half;
    for (int64_t head = 0; head < args.heads; ++head) {
      E* const first = args.x + row * args.row_stride + head * args.head_dim;
      E* const second = first + half;
      for (int64_t i = 0; i < half; i += kLanes<T>) {
        const Vector<T> a = LoadOfRow(first, i, half);
        const Vector<T> b = LoadOfRow(second, i, half);
        const Vector<T> c = LoadOfRow(cosine, i, half);
        const Vector<T> s = LoadOfRow(sine, i, half) * sign;
        StoreOfRow(first, i, half, a * c - b * s);
        StoreOfRow(second, i, half, b * c + a * s);
      }
    }
  }
}

template <typename E>
void Run(const SwiGluArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t inner = args.inner;
  for (int64_t row = 0; row < args.rows; ++row) {
    const T weight = args.weights == nullptr ? T{1} : args.weights[row];
    const E* const gate = args.gate_up + row * 2 * inner;
    const E* const up = gate + inner;
    E* const activated = args.activated + row * inner;
    for (int64_t i = 0; i < inner; i += kLanes<T>) {
      const Vector<T> g = LoadOfRow(gate, i, inner);
      StoreOfRow(activated, i, inner, g * Sigmoid<T>(g) * LoadOfRow(up, i, inner) * weight);
    }
  }
}

template <typename E>
void Run(const SwiGluBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t inner = args.inner;
  for (int64_t row = 0; row < args.rows; ++row) {
    const T weight = args.weights == nullptr ? T{1} : args.weights[row];
    const E* const gate = args.gate_up + row * 2 * inner;
    const E* const up = gate + inner;
    const E* const grad_activated = args.grad_activated + row * inner;
    E* const grad_gate = args.grad_gate_up + row * 2 * inner;
    E* const grad_up = grad_gate + inner;
    E* const activated = args.activated + row * inner;
    Vector<T> grad_weight = {};
    for (int64_t i = 0; i < inner; i += kLanes<T>) {
      const Vector<T> g = LoadOfRow(gate, i, inner);
      const Vector<T> u = LoadOfRow(up, i, inner);
      const Vector<T> grad = LoadOfRow(grad_activated, i, inner);
      const Vector<T> weighted = grad * weight;
      const Vector<T> sigmoid = Sigmoid<T>(g);
      const Vector<T> silu = g * sigmoid;
      const Vector<T> grad_g = weighted * u * (sigmoid + silu * (static_cast<T>(1) - sigmoid));
      const Vector<T> product = silu * u;
      grad_weight += grad * product;
      StoreOfRow(grad_gate, i, inner, grad_g);
      StoreOfRow(grad_up, i, inner, weighted * silu);
      StoreOfRow(activated, i, inner, product * weight);
    }
    if (args.grad_weights != nullptr) {
      args.grad_weights[row] = Sum<T>(grad_weight);
    }
  }
}

template <typename E>
void Run(const SquaredReluArgs<E>& args) {
  using T = Arithmetic<E>;
  for (int64_t i = 0; i < args.elements; i += kLanes<T>) {
    const Vector<T> x = LoadOfRow(args.up, i, args.elements);
    const Vector<T> positive = x < Vector<T>{} ? Vector<T>{} : x;  // NaN stays NaN
    StoreOfRow(args.activated, i, args.elements, positive * positive);
  }
}

template <typename E>
void Run(const SquaredReluBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  for (int64_t i = 0; i < args.elements; i += kLanes<T>) {
    const Vector<T> x = LoadOfRow(args.up, i, args.elements);
    const Vector<T> positive = x < Vector<T>{} ? Vector<T>{} : x;
    const Vector<T> grad = LoadOfRow(args.grad_activated, i, args.elements);
    StoreOfRow(args.grad_up, i, args.elements, grad * positive * static_cast<T>(2));
    StoreOfRow(args.activated, i, args.elements, positive * positive);
  }
}

template <typename E>
void Run(const LogSumExpArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns;
  const E* logits = args.logits;
  for (int64_t row = 0; row < args.rows; ++row, logits += columns) {
    T largest = Widen(logits[0]);
    int64_t i = 0;
    if (columns >= kLanes<T>) {
      Vector<T> max = Load(logits);
      for (; i + kLanes<T> <= columns; i += kLanes<T>) {
        max = Max<T>(max, Load(logits + i));
      }
      largest = Largest<T>(max);
    }
    for (; i < columns; ++i) {
      largest = Widen(logits[i]) > largest ? Widen(logits[i]) : largest;
    }
    // If all numbers are -inf, the sum is 0, and its logarithm -inf.
    const T base = largest == -static_cast<T>(__builtin_inf()) ? T{0} : largest;
    Vector<T> sum = {};
    for (i = 0; i + kLanes<T> <= columns; i += kLanes<T>) {
      sum += Exp<T>(Load(logits + i) - base);
    }
    T total = Sum<T>(sum);
    if (i < columns) {
      const int64_t left = columns - i;
      alignas(kVectorBytes) T lanes[kLanes<T>];
      Store<T>(lanes, Exp<T>(LoadFirst(logits + i, left, base) - base));
      for (int64_t j = 0; j < left; ++j) {
        total += lanes[j];
      }
    }
    args.lse[row] = base + Logarithm(total);
  }
}

template <typename E>
void Run(const SoftmaxArgs<E>& args) {
  using T = Arithmetic<E>;
  auto [logits, lse, scale, rows, columns, out] = args;
  const T factor = static_cast<T>(scale);
  for (int64_t row = 0; row < rows; ++row, logits += columns, out += columns) {
    for (int64_t i = 0; i < columns; i += kLanes<T>) {
      StoreOfRow(out, i, columns, Exp<T>(LoadOfRow(logits, i, columns) - lse[row]) * factor);
    }
  }
}

// y[i] = function(y[i], x[i]), computed in T. X, Y: the types of the elements in memory.
template <typename X, typename Y, typename Function>
inline void ForEachPair(const X* x, int64_t elements, Y* y, const Function& function) {
  using T = Arithmetic<X>;
  int64_t i = 0;
  for (; i + kLanes<T> <= elements; i += kLanes<T>) {
    Store<Y>(y + i, function(Load(y + i), Load(x + i)));
  }
  for (; i < elements; ++i) {
    Narrow(function(Widen(y[i]), Widen(x[i])), y[i]);
  }
}

template <typename E>
void Run(const AddArgs<E>& args) {
  ForEachPair(args.x, args.elements, args.y, [](auto sum, auto term) { return sum + term; });
}

template <typename E>
void Run(const AccumulateArgs<E>& args) {
  ForEachPair(args.x, args.elements, args.sum, [](auto sum, auto term) { return sum + term; });
}

template <typename E>
void Run(const WidenArgs<E>& args) {
  ForEachPair(args.x, args.elements, args.to, [](auto, auto value) { return value; });
}

template <typename E>
void Run(const NarrowArgs<E>& args) {
  ForEachPair(args.x, args.elements, args.to, [](auto, auto value) { return value; });
}

TANDEM_CPU_KERNEL(RmsNormArgs)
TANDEM_CPU_KERNEL(RmsNormBackwardArgs)
TANDEM_CPU_KERNEL(RopeArgs)
TANDEM_CPU_KERNEL(SwiGluArgs)
TANDEM_CPU_KERNEL(SwiGluBackwardArgs)
TANDEM_CPU_KERNEL(SquaredReluArgs)
TANDEM_CPU_KERNEL(SquaredReluBackwardArgs)
TANDEM_CPU_KERNEL(LogSumExpArgs)
TANDEM_CPU_KERNEL(SoftmaxArgs)
TANDEM_CPU_KERNEL(AddArgs)
TANDEM_CPU_KERNEL(AccumulateArgs)
TANDEM_CPU_KERNEL(WidenArgs)
TANDEM_CPU_KERNEL(NarrowArgs)

}  // namespace tandem::ops::cpu::TANDEM_ISA
