// SPDX-License-Identifier: Apache-2.0
// Everything but attention: loops over rows. Compiled once per instruction set (CMakeLists.txt).
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/simd.h"

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
    const Vector<T> a = i + kLanes<T> <= columns ? Load(x + i) : LoadFirst(x + i, columns - i, T{0});
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
void RmsNorm(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y) {
  using T = Arithmetic<E>;
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const T r = ReciprocalRms(x, epsilon, columns);
    int64_t i = 0;
    for (; i + kLanes<T> <= columns; i += kLanes<T>) {
      Store(y + i, Load(x + i) * r * Load(weight + i));
    }
    for (; i < columns; ++i) {
      Narrow(Widen(x[i]) * r * Widen(weight[i]), y[i]);
    }
  }
}

// With r = 1 / rms(x) and g = grad_y * weight: grad_x = r * (g - x * r^2 * mean(g * x)).
template <typename E, typename T = Arithmetic<E>>
void RmsNormBackward(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                     int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                     T* grad_weight) {
  if (!add_weight) {
    for (int64_t i = 0; i < columns; ++i) {
      grad_weight[i] = 0;
    }
  }
  for (int64_t row = 0; row < rows; ++row, x += columns, grad_y += columns, grad_x += columns) {
    const T r = ReciprocalRms(x, epsilon, columns);
    Vector<T> dot = {};
    int64_t i = 0;
    for (; i + kLanes<T> <= columns; i += kLanes<T>) {
      const Vector<T> gx = Load(grad_y + i) * Load(x + i);
      Store(grad_weight + i, Load(grad_weight + i) + gx * r);
      dot += gx * Load(weight + i);
    }
    T mean = Sum<T>(dot);
    for (; i < columns; ++i) {
      const T gx = Widen(grad_y[i]) * Widen(x[i]);
      grad_weight[i] += gx * r;
      mean += gx * Widen(weight[i]);
    }
    const T shrink = r * r * r * mean / static_cast<T>(columns);
    for (i = 0; i + kLanes<T> <= columns; i += kLanes<T>) {
      Vector<T> gradient = Load(grad_y + i) * Load(weight + i) * r - Load(x + i) * shrink;
      if (residual != nullptr) {
        gradient += Load(residual + i);
      }
      Store(grad_x + i, add_x ? Load(grad_x + i) + gradient : gradient);
    }
    for (; i < columns; ++i) {
      T gradient = Widen(grad_y[i]) * Widen(weight[i]) * r - Widen(x[i]) * shrink;
      if (residual != nullptr) {
        gradient += Widen(residual[i]);
      }
      Narrow(add_x ? Widen(grad_x[i]) + gradient : gradient, grad_x[i]);
    }
    if (residual != nullptr) {
      residual += columns;
    }
  }
}

template <typename E, typename T = Arithmetic<E>>
void Rope(const T* cosines, const T* sines, T sign, int64_t rows, int64_t length, int64_t heads,
          int64_t head_dim, int64_t row_stride, E* x) {
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const T* cosine = cosines + row % length * half;
    const T* sine = sines + row % length * half;
    for (int64_t head = 0; head < heads; ++head) {
      E* first = x + row * row_stride + head * head_dim;
      E* second = first + half;
      int64_t i = 0;
      for (; i + kLanes<T> <= half; i += kLanes<T>) {
        const Vector<T> a = Load(first + i);
        const Vector<T> b = Load(second + i);
        const Vector<T> c = Load(cosine + i);
        const Vector<T> s = Load(sine + i) * sign;
        Store(first + i, a * c - b * s);
        Store(second + i, b * c + a * s);
      }
      for (; i < half; ++i) {
        const T a = Widen(first[i]);
        const T b = Widen(second[i]);
        const T s = sine[i] * sign;
        Narrow(a * cosine[i] - b * s, first[i]);
        Narrow(b * cosine[i] + a * s, second[i]);
      }
    }
  }
}

namespace {

template <typename T>
inline Vector<T> Sigmoid(Vector<T> x) {
  return static_cast<T>(1) / (static_cast<T>(1) + Exp<T>(-x));
}

}  // namespace

template <typename E, typename T = Arithmetic<E>>
void SwiGlu(const E* gate_up, const T* weights, int64_t rows, int64_t inner, E* activated) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * inner, activated += inner) {
    const T weight = weights == nullptr ? T{1} : weights[row];
    const E* up = gate_up + inner;
    for (int64_t i = 0; i < inner; i += kLanes<T>) {
      const int64_t left = inner - i;
      if (left >= kLanes<T>) {
        const Vector<T> g = Load(gate_up + i);
        Store(activated + i, g * Sigmoid<T>(g) * Load(up + i) * weight);
      } else {
        const Vector<T> g = LoadFirst(gate_up + i, left, T{0});
        StoreFirst<E>(activated + i, left, g * Sigmoid<T>(g) * LoadFirst(up + i, left, T{0}) * weight);
      }
    }
  }
}

template <typename E, typename T = Arithmetic<E>>
void SwiGluBackward(const E* gate_up, const T* weights, const E* grad_activated, int64_t rows, int64_t inner,
                    E* grad_gate_up, E* activated, T* grad_weights) {
  for (int64_t row = 0; row < rows; ++row) {
    const T weight = weights == nullptr ? T{1} : weights[row];
    const E* up = gate_up + inner;
    E* grad_up = grad_gate_up + inner;
    Vector<T> grad_weight = {};
    for (int64_t i = 0; i < inner; i += kLanes<T>) {
      const int64_t left = inner - i;
      const bool whole = left >= kLanes<T>;
      const Vector<T> g = whole ? Load(gate_up + i) : LoadFirst(gate_up + i, left, T{0});
      const Vector<T> u = whole ? Load(up + i) : LoadFirst(up + i, left, T{0});
      const Vector<T> grad = whole ? Load(grad_activated + i) : LoadFirst(grad_activated + i, left, T{0});
      const Vector<T> weighted = grad * weight;
      const Vector<T> sigmoid = Sigmoid<T>(g);
      const Vector<T> silu = g * sigmoid;
      const Vector<T> grad_g = weighted * u * (sigmoid + silu * (static_cast<T>(1) - sigmoid));
      const Vector<T> product = silu * u;
      grad_weight += grad * product;
      if (whole) {
        Store(grad_gate_up + i, grad_g);
        Store<E>(grad_up + i, weighted * silu);
        Store<E>(activated + i, product * weight);
      } else {
        StoreFirst(grad_gate_up + i, left, grad_g);
        StoreFirst<E>(grad_up + i, left, weighted * silu);
        StoreFirst<E>(activated + i, left, product * weight);
      }
    }
    if (grad_weights != nullptr) {
      grad_weights[row] = Sum<T>(grad_weight);
    }
    gate_up += 2 * inner;
    grad_gate_up += 2 * inner;
    grad_activated += inner;
    activated += inner;
  }
}

template <typename E, typename T = Arithmetic<E>>
void LogSumExp(const E* logits, int64_t rows, int64_t columns, T* lse) {
  for (int64_t row = 0; row < rows; ++row, logits += columns) {
    T largest = Widen(logits[0]);
    int64_t i = 0;
    if (columns >= kLanes<T>) {
      Vector<T> most = Load(logits);
      for (; i + kLanes<T> <= columns; i += kLanes<T>) {
        most = Max<T>(most, Load(logits + i));
      }
      largest = Largest<T>(most);
    }
    for (; i < columns; ++i) {
      largest = Widen(logits[i]) > largest ? Widen(logits[i]) : largest;
    }
    Vector<T> sum = {};
    for (i = 0; i + kLanes<T> <= columns; i += kLanes<T>) {
      sum += Exp<T>(Load(logits + i) - largest);
    }
    T total = Sum<T>(sum);
    if (i < columns) {
      const int64_t left = columns - i;
      alignas(kVectorBytes) T lanes[kLanes<T>];
      Store<T>(lanes, Exp<T>(LoadFirst(logits + i, left, largest) - largest));
      for (int64_t j = 0; j < left; ++j) {
        total += lanes[j];
      }
    }
    lse[row] = largest + Logarithm(total);
  }
}

template <typename E, typename T = Arithmetic<E>>
void Softmax(const E* logits, const T* lse, double scale, int64_t rows, int64_t columns, E* out) {
  const T factor = static_cast<T>(scale);
  for (int64_t row = 0; row < rows; ++row, logits += columns, out += columns) {
    for (int64_t i = 0; i < columns; i += kLanes<T>) {
      const int64_t left = columns - i;
      if (left >= kLanes<T>) {
        Store<E>(out + i, Exp<T>(Load(logits + i) - lse[row]) * factor);
      } else {
        StoreFirst<E>(out + i, left, Exp<T>(LoadFirst(logits + i, left, T{0}) - lse[row]) * factor);
      }
    }
  }
}

// y[i] = function(y[i], x[i]), in what T is. X, Y: their elements in memory.
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

template <typename X, typename Y>
void Add(const X* x, int64_t elements, Y* y) {
  ForEachPair(x, elements, y, [](auto sum, auto term) { return sum + term; });
}

template <typename X, typename Y>
void Convert(const X* x, int64_t elements, Y* y) {
  ForEachPair(x, elements, y, [](auto, auto value) { return value; });
}

template <typename E>
void SetRowKernels(Kernels<E>& kernels) {
  using T = Arithmetic<E>;
  kernels.rms_norm = RmsNorm<E>;
  kernels.rms_norm_backward = RmsNormBackward<E>;
  kernels.rope = Rope<E>;
  kernels.swiglu = SwiGlu<E>;
  kernels.swiglu_backward = SwiGluBackward<E>;
  kernels.log_sum_exp = LogSumExp<E>;
  kernels.softmax = Softmax<E>;
  kernels.add = Add<E, E>;
  kernels.accumulate = Add<E, T>;
  kernels.widen = Convert<E, T>;
  kernels.narrow = Convert<T, E>;
}

template void SetRowKernels(Kernels<float>& kernels);
template void SetRowKernels(Kernels<double>& kernels);
template void SetRowKernels(Kernels<Bf16>& kernels);

}  // namespace tandem::ops::cpu::TANDEM_ISA
