// SPDX-License-Identifier: Apache-2.0
// The loops of Mamba-2 mixers, over channels or over the numbers of a state. Compiled once per instruction
// set (CMakeLists.txt).
#include "ops/causal_conv.h"
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/simd.h"
#include "ops/cpu/time_step.h"
#include "ops/gated_norm.h"
#include "ops/state_scan.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

// The weights of some channels and their bias.
template <typename E>
struct Taps {
  using T = Arithmetic<E>;

  template <typename Args>
  Taps(const Args& args, int64_t channel) : width(args.width) {
    const int64_t left = args.channels - channel;
    for (int64_t j = 0; j < width; ++j) {
      alignas(kVectorBytes) T lanes[kStep<T>] = {};
      for (int64_t i = 0; i < kStep<T> && i < left; ++i) {
        lanes[i] = Widen(args.weight[(channel + i) * width + j]);
      }
      weight[j] = Load(lanes);
    }
    bias = args.bias == nullptr ? Vector<T>{} : LoadOfRow(args.bias, channel, args.channels);
  }

  // Returns the activation's input at row `row`; `before` rows of its document precede it.
  Vector<T> Sum(const E* row, int64_t stride, int64_t channel, int64_t channels, int64_t before) const {
    Vector<T> sum = bias;
    for (int64_t back = before < width - 1 ? before : width - 1; back >= 0; --back) {
      sum += weight[width - 1 - back] * LoadOfRow(row - back * stride, channel, channels);
    }
    return sum;
  }

  int64_t width;
  Vector<T> weight[kMostConvWidth];
  Vector<T> bias;
};

template <typename E>
void Run(const CausalConvArgs<E>& args) {
  using T = Arithmetic<E>;
  for (int64_t channel = 0; channel < args.channels; channel += kStep<T>) {
    const Taps<E> taps(args, channel);
    for (int64_t sequence = 0; sequence < args.sequences; ++sequence) {
      const int64_t* const starts = args.documents.At(sequence, 0);
      const E* const x = args.x + sequence * args.length * args.x_stride;
      E* const y = args.y + sequence * args.length * args.channels;
      for (int64_t t = 0; t < args.length; ++t) {
        const int64_t before = t - (starts == nullptr ? 0 : starts[t]);
        const Vector<T> sum = taps.Sum(x + t * args.x_stride, args.x_stride, channel, args.channels, before);
        StoreOfRow(y + t * args.channels, channel, args.channels, sum * Sigmoid<T>(sum));
      }
    }
  }
}

// Goes from the last token to the first: a token's gradient comes from the `width` sums that read it.
template <typename E>
void Run(const CausalConvBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t width = args.width;
  for (int64_t channel = 0; channel < args.channels; channel += kStep<T>) {
    const Taps<E> taps(args, channel);
    Vector<T> grad_weight[kMostConvWidth] = {};
    Vector<T> grad_bias = {};
    for (int64_t sequence = 0; sequence < args.sequences; ++sequence) {
      const int64_t* const starts = args.documents.At(sequence, 0);
      const int64_t first = sequence * args.length;
      Vector<T> grads[kMostConvWidth] = {};  // of the sum of token t, at t % width
      for (int64_t t = args.length - 1; t >= 0; --t) {
        const int64_t before = t - (starts == nullptr ? 0 : starts[t]);
        const E* const x = args.x + (first + t) * args.x_stride;
        const Vector<T> sum = taps.Sum(x, args.x_stride, channel, args.channels, before);
        const Vector<T> sigmoid = Sigmoid<T>(sum);
        const Vector<T> grad = LoadOfRow(args.grad_y + (first + t) * args.channels, channel, args.channels) *
                               (sigmoid + sum * sigmoid * (static_cast<T>(1) - sigmoid));
        grads[t % width] = grad;
        grad_bias += grad;
        for (int64_t back = before < width - 1 ? before : width - 1; back >= 0; --back) {
          grad_weight[width - 1 - back] += grad * LoadOfRow(x - back * args.x_stride, channel, args.channels);
        }
        Vector<T> grad_x = {};
        for (int64_t ahead = 0; ahead < width && t + ahead < args.length; ++ahead) {
          if (starts != nullptr && starts[t + ahead] > t) {
            break;  // it belongs to another document
          }
          grad_x += taps.weight[width - 1 - ahead] * grads[(t + ahead) % width];
        }
        StoreOfRow(args.grad_x + (first + t) * args.grad_x_stride, channel, args.channels, grad_x);
      }
    }
    if (args.grad_bias != nullptr) {
      StoreOfRow(args.grad_bias, channel, args.channels, grad_bias);
    }
    for (int64_t j = 0; j < width; ++j) {
      alignas(kVectorBytes) T lanes[kStep<T>];
      Store(lanes, grad_weight[j]);
      for (int64_t i = 0; i < kStep<T> && channel + i < args.channels; ++i) {
        args.grad_weight[(channel + i) * width + j] = lanes[i];
      }
    }
  }
}

// The time step of a token for one head.
template <typename T>
struct TimeStep {
  template <typename Args>
  TimeStep(const Args& args, int64_t sequence, int64_t t, int64_t head) {
    const int64_t* const starts = args.documents.At(sequence, t);
    const T raw =
        Widen(args.raw[(sequence * args.shape.length + t) * args.raw_stride + head]) + args.dt_bias[head];
    const StepLength<T> step(raw, static_cast<T>(args.shape.least_step));
    length = step.length;
    slope = step.slope;
    const bool begins = t == 0 || (starts != nullptr && *starts == t);
    decay = begins ? T{0} : Exponential(length * -Exponential(args.a_log[head]));
  }

  T length;
  T slope;  // of the length
  T decay;  // of the state before the token; 0 if a document begins
};

template <typename E>
void Run(const StateScanArgs<E>& args) {
  using T = Arithmetic<E>;
  const ScanShape& s = args.shape;
  const int64_t channels = s.channels();
  T* const state = static_cast<T*>(args.work.begin);  // [P, N]
  const int64_t numbers = s.head_dim * s.state;
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t group = head / (s.heads / s.groups);
      const T d = args.d[head];
      for (int64_t i = 0; i < numbers; ++i) {
        state[i] = 0;
      }
      for (int64_t t = 0; t < s.length; ++t) {
        if (t % s.chunk == 0) {
          T* const kept = args.states + ((sequence * s.chunks() + t / s.chunk) * s.heads + head) * numbers;
          for (int64_t i = 0; i < numbers; ++i) {
            kept[i] = state[i];
          }
        }
        const TimeStep<T> step(args, sequence, t, head);
        const E* const row = args.xbc + (sequence * s.length + t) * channels;
        const E* const x = row + head * s.head_dim;
        const E* const b = row + s.inner() + group * s.state;
        const E* const c = b + s.groups * s.state;
        E* const y = args.y + (sequence * s.length + t) * s.inner() + head * s.head_dim;
        for (int64_t p = 0; p < s.head_dim; ++p) {
          T* const own = state + p * s.state;
          const T scaled = step.length * Widen(x[p]);
          Vector<T> sum = {};
          for (int64_t i = 0; i < s.state; i += kStep<T>) {
            const Vector<T> next =
                LoadOfRow(own, i, s.state) * step.decay + LoadOfRow(b, i, s.state) * scaled;
            StoreOfRow(own, i, s.state, next);
            sum += next * LoadOfRow(c, i, s.state);
          }
          Narrow(Sum<T>(sum) + d * Widen(x[p]), y[p]);
        }
      }
    }
  }
}

// The work memory of a backward: StateScanBackwardWorkBytes.
template <typename T>
struct ScanMemory {
  ScanMemory(const ScanShape& s, void* begin)
      : adjoints(static_cast<T*>(begin)),
        states(adjoints + s.inner() * s.state),
        grad_b(states + (s.chunk + 1) * s.state),
        grad_c(grad_b + s.chunk * s.state),
        lengths(grad_c + s.chunk * s.state),
        decays(lengths + s.chunk),
        by_input(decays + s.chunk),
        by_state(by_input + s.chunk) {}

  T* adjoints;  // [H, P, N], of the states after the chunk
  T* states;    // [chunk + 1, N], of one channel: before each token, and after the last
  T* grad_b;    // [chunk, N]
  T* grad_c;    // [chunk, N]
  T* lengths;   // [chunk], of time steps
  T* decays;    // [chunk]
  T* by_input;  // [chunk], <G_t, x_t ⊗ B_t>
  T* by_state;  // [chunk], exp(dt_t A) <G_t, S_{t-1}>
};

// The tokens of one chunk of a sequence, and a group of heads.
struct ScanChunk {
  int64_t sequence;
  int64_t begin;  // position in the sequence
  int64_t tokens;
  int64_t group;
};

// Computes one channel: its states forwards, then its adjoint backwards.
template <typename E, typename T = Arithmetic<E>>
void ScanChannelBackward(const StateScanBackwardArgs<E>& args, const ScanChunk& chunk, int64_t head,
                         int64_t p, const ScanMemory<T>& memory) {
  const ScanShape& s = args.shape;
  const int64_t channels = s.channels();
  const int64_t first = chunk.sequence * s.length + chunk.begin;
  const int64_t channel = head * s.head_dim + p;
  const E* const rows = args.xbc + first * channels;
  const E* const b = rows + s.inner() + chunk.group * s.state;
  const E* const c = b + s.groups * s.state;
  const T d = args.d[head];
  const T* const kept =
      args.states + ((chunk.sequence * s.chunks() + chunk.begin / s.chunk) * s.inner() + channel) * s.state;
  for (int64_t i = 0; i < s.state; ++i) {
    memory.states[i] = kept[i];
  }
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    const T* const before = memory.states + t * s.state;
    T* const behind = memory.states + (t + 1) * s.state;
    const T scaled = memory.lengths[t] * Widen(rows[t * channels + channel]);
    for (int64_t i = 0; i < s.state; i += kStep<T>) {
      StoreOfRow(behind, i, s.state,
                 LoadOfRow(before, i, s.state) * memory.decays[t] +
                     LoadOfRow(b + t * channels, i, s.state) * scaled);
    }
  }
  T* const adjoint = memory.adjoints + channel * s.state;
  T grad_d = 0;
  for (int64_t t = chunk.tokens - 1; t >= 0; --t) {
    const T* const before = memory.states + t * s.state;
    const T* const behind = memory.states + (t + 1) * s.state;
    T* const grad_b = memory.grad_b + t * s.state;
    T* const grad_c = memory.grad_c + t * s.state;
    const T x = Widen(rows[t * channels + channel]);
    const T scaled = memory.lengths[t] * x;
    const T grad_y = Widen(args.grad_y[(first + t) * s.inner() + channel]);
    Vector<T> with_b = {};
    Vector<T> with_state = {};
    for (int64_t i = 0; i < s.state; i += kStep<T>) {
      const Vector<T> g = LoadOfRow(adjoint, i, s.state) + LoadOfRow(c + t * channels, i, s.state) * grad_y;
      StoreOfRow(grad_c, i, s.state, LoadOfRow(grad_c, i, s.state) + LoadOfRow(behind, i, s.state) * grad_y);
      StoreOfRow(grad_b, i, s.state, LoadOfRow(grad_b, i, s.state) + g * scaled);
      with_b += g * LoadOfRow(b + t * channels, i, s.state);
      with_state += g * LoadOfRow(before, i, s.state);
      StoreOfRow(adjoint, i, s.state, g * memory.decays[t]);
    }
    const T along_b = Sum<T>(with_b);
    memory.by_input[t] += along_b * x;
    memory.by_state[t] += memory.decays[t] * Sum<T>(with_state);
    Narrow(memory.lengths[t] * along_b + d * grad_y, args.grad_xbc[(first + t) * channels + channel]);
    grad_d += grad_y * x;
  }
  args.grad_d[head] += grad_d;
}

template <typename E, typename T = Arithmetic<E>>
void ScanHeadBackward(const StateScanBackwardArgs<E>& args, const ScanChunk& chunk, int64_t head,
                      const ScanMemory<T>& memory) {
  const ScanShape& s = args.shape;
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    const TimeStep<T> step(args, chunk.sequence, chunk.begin + t, head);
    memory.lengths[t] = step.length;
    memory.decays[t] = step.decay;
    memory.by_input[t] = 0;
    memory.by_state[t] = 0;
  }
  for (int64_t p = 0; p < s.head_dim; ++p) {
    ScanChannelBackward(args, chunk, head, p, memory);
  }
  const T a = -Exponential(args.a_log[head]);
  T grad_a = 0;
  T grad_bias = 0;
  for (int64_t t = chunk.tokens - 1; t >= 0; --t) {
    const TimeStep<T> step(args, chunk.sequence, chunk.begin + t, head);
    const T grad = (memory.by_input[t] + a * memory.by_state[t]) * step.slope;
    Narrow(grad, args.grad_raw[(chunk.sequence * s.length + chunk.begin + t) * args.grad_raw_stride + head]);
    grad_bias += grad;
    grad_a += memory.lengths[t] * memory.by_state[t];
  }
  args.grad_dt_bias[head] += grad_bias;
  args.grad_a_log[head] += a * grad_a;
}

// Computes each sequence from its last chunk to its first.
template <typename E>
void Run(const StateScanBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const ScanShape& s = args.shape;
  const ScanMemory<T> memory(s, args.work.begin);
  const int64_t heads = s.heads / s.groups;
  for (int64_t head = 0; head < s.heads; ++head) {
    args.grad_dt_bias[head] = 0;
    args.grad_a_log[head] = 0;
    args.grad_d[head] = 0;
  }
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    for (int64_t i = 0; i < s.inner() * s.state; ++i) {
      memory.adjoints[i] = 0;
    }
    for (int64_t begin = (s.chunks() - 1) * s.chunk; begin >= 0; begin -= s.chunk) {
      const int64_t tokens = s.length - begin < s.chunk ? s.length - begin : s.chunk;
      for (int64_t group = 0; group < s.groups; ++group) {
        for (int64_t i = 0; i < 2 * s.chunk * s.state; ++i) {
          memory.grad_b[i] = 0;  // also of C, which follows
        }
        for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
          ScanHeadBackward(args, {sequence, begin, tokens, group}, head, memory);
        }
        for (int64_t t = 0; t < tokens; ++t) {
          E* const grad_b =
              args.grad_xbc + (sequence * s.length + begin + t) * s.channels() + s.inner() + group * s.state;
          E* const grad_c = grad_b + s.groups * s.state;
          for (int64_t i = 0; i < s.state; i += kStep<T>) {
            StoreOfRow(grad_b, i, s.state, LoadOfRow(memory.grad_b + t * s.state, i, s.state));
            StoreOfRow(grad_c, i, s.state, LoadOfRow(memory.grad_c + t * s.state, i, s.state));
          }
        }
      }
    }
  }
}

// Computes y silu(gate) of some columns.
template <typename E, typename T = Arithmetic<E>>
inline Vector<T> Gated(const E* y, const E* gate, int64_t i, int64_t columns) {
  const Vector<T> g = LoadOfRow(gate, i, columns);
  return LoadOfRow(y, i, columns) * g * Sigmoid<T>(g);
}

template <typename E, typename T = Arithmetic<E>>
inline T ReciprocalRmsOfGated(const E* y, const E* gate, double epsilon, int64_t columns) {
  Vector<T> squares = {};
  for (int64_t i = 0; i < columns; i += kStep<T>) {
    const Vector<T> gated = Gated(y, gate, i, columns);
    squares += gated * gated;
  }
  return 1 / SquareRoot(Sum<T>(squares) / static_cast<T>(columns) + static_cast<T>(epsilon));
}

template <typename E>
void Run(const GatedNormArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns / args.groups;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t begin = 0; begin < args.columns; begin += columns) {
      const E* const y = args.y + row * args.columns + begin;
      const E* const gate = args.gate + row * args.gate_stride + begin;
      const E* const weight = args.weight + begin;
      const T r = ReciprocalRmsOfGated(y, gate, args.epsilon, columns);
      for (int64_t i = 0; i < columns; i += kStep<T>) {
        StoreOfRow(args.normed + row * args.columns + begin, i, columns,
                   Gated(y, gate, i, columns) * r * LoadOfRow(weight, i, columns));
      }
    }
  }
}

// Computed like the backward of RmsNorm (rows.cc) with v = y silu(gate), and then through y and gate.
template <typename E>
void Run(const GatedNormBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns / args.groups;
  for (int64_t i = 0; i < args.columns; ++i) {
    args.grad_weight[i] = 0;
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t begin = 0; begin < args.columns; begin += columns) {
      const E* const grad = args.grad_normed + row * args.columns + begin;
      const E* const y = args.y + row * args.columns + begin;
      const E* const gate = args.gate + row * args.gate_stride + begin;
      const E* const weight = args.weight + begin;
      T* const grad_weight = args.grad_weight + begin;
      const T r = ReciprocalRmsOfGated(y, gate, args.epsilon, columns);
      Vector<T> dot = {};
      for (int64_t i = 0; i < columns; i += kStep<T>) {
        const Vector<T> product = LoadOfRow(grad, i, columns) * Gated(y, gate, i, columns);
        StoreOfRow(grad_weight, i, columns, LoadOfRow(grad_weight, i, columns) + product * r);
        dot += product * LoadOfRow(weight, i, columns);
      }
      const T shrink = r * r * r * Sum<T>(dot) / static_cast<T>(columns);
      for (int64_t i = 0; i < columns; i += kStep<T>) {
        const Vector<T> g = LoadOfRow(gate, i, columns);
        const Vector<T> of_y = LoadOfRow(y, i, columns);
        const Vector<T> sigmoid = Sigmoid<T>(g);
        const Vector<T> silu = g * sigmoid;
        const Vector<T> grad_gated =
            LoadOfRow(grad, i, columns) * LoadOfRow(weight, i, columns) * r - of_y * silu * shrink;
        StoreOfRow(args.grad_y + row * args.columns + begin, i, columns, grad_gated * silu);
        StoreOfRow(args.grad_gate + row * args.grad_gate_stride + begin, i, columns,
                   grad_gated * of_y * (sigmoid + silu * (static_cast<T>(1) - sigmoid)));
      }
    }
  }
}

}  // namespace

TANDEM_CPU_KERNEL(CausalConvArgs)
TANDEM_CPU_KERNEL(CausalConvBackwardArgs)
TANDEM_CPU_KERNEL(StateScanArgs)
TANDEM_CPU_KERNEL(StateScanBackwardArgs)
TANDEM_CPU_KERNEL(GatedNormArgs)
TANDEM_CPU_KERNEL(GatedNormBackwardArgs)

}  // namespace tandem::ops::cpu::TANDEM_ISA
