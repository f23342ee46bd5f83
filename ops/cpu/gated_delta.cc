// SPDX-License-Identifier: Apache-2.0
// The recurrence of gated delta nets, over the numbers of a value channel's state, and the norm before a
// gate. Compiled once per instruction set (CMakeLists.txt).
#include "ops/gated_delta.h"

#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/simd.h"
#include "ops/cpu/time_step.h"
#include "ops/norm_gate.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

template <typename A, typename B, typename T = Arithmetic<A>>
inline T DotOf(const A* a, const B* b, int64_t count) {
  Vector<T> sum = {};
  for (int64_t i = 0; i < count; i += kStep<T>) {
    sum += LoadOfRow(a, i, count) * LoadOfRow(b, i, count);
  }
  return Sum<T>(sum);
}

// Returns the factor that makes a query or key one of length 1.
template <typename E, typename T = Arithmetic<E>>
inline T ReciprocalLength(const E* x, int64_t count) {
  return 1 / SquareRoot(DotOf(x, x, count) + static_cast<T>(kDeltaNormEpsilon));
}

template <typename T>
inline T QueryScale(const DeltaShape& s) {
  return 1 / SquareRoot(static_cast<T>(s.key_dim));
}

template <typename E, typename T = Arithmetic<E>>
inline void ScaleRow(const E* x, T factor, int64_t count, T* to) {
  for (int64_t i = 0; i < count; i += kStep<T>) {
    StoreOfRow(to, i, count, LoadOfRow(x, i, count) * factor);
  }
}

// The gates of a value head at a token: how much of the state stays, and how much of a value is written.
template <typename T>
struct DeltaGates {
  template <typename Args>
  DeltaGates(const Args& args, int64_t sequence, int64_t t, int64_t head)
      : step(Raw<T>(args, sequence, t, head, /*second=*/true) + args.dt_bias[head], T{0}) {
    const int64_t* const starts = args.documents.At(sequence, t);
    const bool begins = t == 0 || (starts != nullptr && *starts == t);
    decay = begins ? T{0} : Exponential(step.length * -Exponential(args.a_log[head]));
    beta = 1 / (1 + Exponential(-Raw<T>(args, sequence, t, head, /*second=*/false)));
  }

  // Returns the b, or the a, of a head.
  template <typename U, typename Args>
  static U Raw(const Args& args, int64_t sequence, int64_t t, int64_t head, bool second) {
    return Widen(
        args.ba[(sequence * args.shape.length + t) * args.ba_stride + Column(args.shape, head, second)]);
  }
  static int64_t Column(const DeltaShape& s, int64_t head, bool second) {
    return head / s.share() * 2 * s.share() + (second ? s.share() : 0) + head % s.share();
  }

  StepLength<T> step;
  T decay;  // of the state before the token; 0 if a document begins
  T beta;
};

template <typename E>
void Run(const GatedDeltaArgs<E>& args) {
  using T = Arithmetic<E>;
  const DeltaShape& s = args.shape;
  const int64_t numbers = s.value_dim * s.key_dim;
  T* const state = static_cast<T*>(args.work.begin);  // [Dv, Dk]
  T* const q = state + numbers;
  T* const k = q + s.key_dim;
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    for (int64_t head = 0; head < s.value_heads; ++head) {
      for (int64_t i = 0; i < numbers; ++i) {
        state[i] = 0;
      }
      for (int64_t t = 0; t < s.length; ++t) {
        if (t % s.chunk == 0) {
          T* const kept =
              args.states + ((sequence * s.chunks() + t / s.chunk) * s.value_heads + head) * numbers;
          for (int64_t i = 0; i < numbers; ++i) {
            kept[i] = state[i];
          }
        }
        const DeltaGates<T> gates(args, sequence, t, head);
        const int64_t row = sequence * s.length + t;
        const int64_t of_keys = row * s.keys() + head / s.share() * s.key_dim;
        ScaleRow(args.q + of_keys, ReciprocalLength(args.q + of_keys, s.key_dim) * QueryScale<T>(s),
                 s.key_dim, q);
        ScaleRow(args.k + of_keys, ReciprocalLength(args.k + of_keys, s.key_dim), s.key_dim, k);
        const E* const v = args.v + row * s.values() + head * s.value_dim;
        E* const y = args.y + row * s.values() + head * s.value_dim;
        for (int64_t p = 0; p < s.value_dim; ++p) {
          T* const own = state + p * s.key_dim;
          const T written = gates.beta * (Widen(v[p]) - gates.decay * DotOf(own, k, s.key_dim));
          Vector<T> sum = {};
          for (int64_t i = 0; i < s.key_dim; i += kStep<T>) {
            const Vector<T> next =
                LoadOfRow(own, i, s.key_dim) * gates.decay + LoadOfRow(k, i, s.key_dim) * written;
            StoreOfRow(own, i, s.key_dim, next);
            sum += next * LoadOfRow(q, i, s.key_dim);
          }
          Narrow(Sum<T>(sum), y[p]);
        }
      }
    }
  }
}

// The work memory of a backward: GatedDeltaBackwardWorkBytes.
template <typename T>
struct DeltaMemory {
  DeltaMemory(const DeltaShape& s, void* begin)
      : adjoints(static_cast<T*>(begin)),
        states(adjoints + s.state()),
        q(states + (s.chunk + 1) * s.key_dim),
        k(q + s.chunk * s.key_dim),
        grad_q(k + s.chunk * s.key_dim),
        grad_k(grad_q + s.chunk * s.key_dim),
        of_q(grad_k + s.chunk * s.key_dim),
        of_k(of_q + s.chunk),
        decays(of_k + s.chunk),
        betas(decays + s.chunk),
        misses(betas + s.chunk),
        by_beta(misses + s.chunk),
        by_decay(by_beta + s.chunk) {}

  T* adjoints;  // [Hv, Dv, Dk], of the states after the chunk
  T* states;    // [chunk + 1, Dk], of one channel: before each token, and after the last
  T* q;         // [chunk, Dk], divided by their lengths
  T* k;
  T* grad_q;
  T* grad_k;
  T* of_q;      // [chunk], the factors that make queries `q`
  T* of_k;      // [chunk]
  T* decays;    // [chunk]
  T* betas;     // [chunk]
  T* misses;    // [chunk], of one channel: by how much the state misses the value
  T* by_beta;   // [chunk], the gradient of β
  T* by_decay;  // [chunk], <G'_t, S'_t>
};

// The tokens of one chunk of a sequence, and a key head.
struct DeltaChunk {
  int64_t sequence;
  int64_t begin;  // position in the sequence
  int64_t tokens;
  int64_t key_head;
};

// Computes one channel of a value head: its states forwards, then its adjoint backwards.
template <typename E, typename T = Arithmetic<E>>
void DeltaChannelBackward(const GatedDeltaBackwardArgs<E>& args, const DeltaChunk& chunk, int64_t channel,
                          const DeltaMemory<T>& m) {
  const DeltaShape& s = args.shape;
  const int64_t dim = s.key_dim;
  const int64_t first = chunk.sequence * s.length + chunk.begin;
  const T* const kept =
      args.states + ((chunk.sequence * s.chunks() + chunk.begin / s.chunk) * s.values() + channel) * dim;
  for (int64_t i = 0; i < dim; ++i) {
    m.states[i] = kept[i];
  }
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    const T* const before = m.states + t * dim;
    const T* const k = m.k + t * dim;
    m.misses[t] = Widen(args.v[(first + t) * s.values() + channel]) - m.decays[t] * DotOf(before, k, dim);
    const T written = m.betas[t] * m.misses[t];
    for (int64_t i = 0; i < dim; i += kStep<T>) {
      StoreOfRow(m.states + (t + 1) * dim, i, dim,
                 LoadOfRow(before, i, dim) * m.decays[t] + LoadOfRow(k, i, dim) * written);
    }
  }
  T* const adjoint = m.adjoints + channel * dim;
  for (int64_t t = chunk.tokens - 1; t >= 0; --t) {
    const T* const before = m.states + t * dim;
    const T* const behind = m.states + (t + 1) * dim;
    const T* const k = m.k + t * dim;
    const T grad_y = Widen(args.grad_y[(first + t) * s.values() + channel]);
    Vector<T> with_k = {};
    for (int64_t i = 0; i < dim; i += kStep<T>) {
      const Vector<T> g = LoadOfRow(adjoint, i, dim) + LoadOfRow(m.q + t * dim, i, dim) * grad_y;
      StoreOfRow(adjoint, i, dim, g);
      StoreOfRow(m.grad_q + t * dim, i, dim,
                 LoadOfRow(m.grad_q + t * dim, i, dim) + LoadOfRow(behind, i, dim) * grad_y);
      with_k += g * LoadOfRow(k, i, dim);
    }
    const T of_written = Sum<T>(with_k);
    const T of_value = m.betas[t] * of_written;
    const T written = m.betas[t] * m.misses[t];
    m.by_beta[t] += of_written * m.misses[t];
    Narrow(of_value, args.grad_v[(first + t) * s.values() + channel]);
    Vector<T> with_state = {};
    for (int64_t i = 0; i < dim; i += kStep<T>) {
      const Vector<T> decayed = LoadOfRow(before, i, dim) * m.decays[t];
      const Vector<T> g = LoadOfRow(adjoint, i, dim);
      StoreOfRow(m.grad_k + t * dim, i, dim,
                 LoadOfRow(m.grad_k + t * dim, i, dim) + g * written - decayed * of_value);
      const Vector<T> of_decayed = g - LoadOfRow(k, i, dim) * of_value;
      with_state += of_decayed * decayed;
      StoreOfRow(adjoint, i, dim, of_decayed * m.decays[t]);
    }
    m.by_decay[t] += Sum<T>(with_state);
  }
}

template <typename E, typename T = Arithmetic<E>>
void DeltaHeadBackward(const GatedDeltaBackwardArgs<E>& args, const DeltaChunk& chunk, int64_t head,
                       const DeltaMemory<T>& m) {
  const DeltaShape& s = args.shape;
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    const DeltaGates<T> gates(args, chunk.sequence, chunk.begin + t, head);
    m.decays[t] = gates.decay;
    m.betas[t] = gates.beta;
    m.by_beta[t] = 0;
    m.by_decay[t] = 0;
  }
  for (int64_t p = 0; p < s.value_dim; ++p) {
    DeltaChannelBackward(args, chunk, head * s.value_dim + p, m);
  }
  const T a = -Exponential(args.a_log[head]);
  T grad_a = 0;
  T grad_bias = 0;
  for (int64_t t = chunk.tokens - 1; t >= 0; --t) {
    const DeltaGates<T> gates(args, chunk.sequence, chunk.begin + t, head);
    const T grad = a * m.by_decay[t] * gates.step.slope;
    E* const grad_ba = args.grad_ba + (chunk.sequence * s.length + chunk.begin + t) * args.grad_ba_stride;
    Narrow(m.by_beta[t] * gates.beta * (1 - gates.beta),
           grad_ba[DeltaGates<T>::Column(s, head, /*second=*/false)]);
    Narrow(grad, grad_ba[DeltaGates<T>::Column(s, head, /*second=*/true)]);
    grad_bias += grad;
    grad_a += gates.step.length * m.by_decay[t];
  }
  args.grad_dt_bias[head] += grad_bias;
  args.grad_a_log[head] += a * grad_a;
}

// Returns the gradient of x from that of x * r, times a scale; r x has length 1.
template <typename E, typename T = Arithmetic<E>>
void LengthBackward(const E* x, const T* grad, T r, T scale, int64_t count, E* grad_x) {
  const T along = r * r * DotOf(grad, x, count);
  for (int64_t i = 0; i < count; i += kStep<T>) {
    StoreOfRow(grad_x, i, count, (LoadOfRow(grad, i, count) - LoadOfRow(x, i, count) * along) * (r * scale));
  }
}

template <typename E, typename T = Arithmetic<E>>
void DeltaChunkBackward(const GatedDeltaBackwardArgs<E>& args, const DeltaChunk& chunk,
                        const DeltaMemory<T>& m) {
  const DeltaShape& s = args.shape;
  const int64_t dim = s.key_dim;
  const T scale = QueryScale<T>(s);
  const auto row_of = [&](int64_t t) {
    return (chunk.sequence * s.length + chunk.begin + t) * s.keys() + chunk.key_head * dim;
  };
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    m.of_q[t] = ReciprocalLength(args.q + row_of(t), dim);
    m.of_k[t] = ReciprocalLength(args.k + row_of(t), dim);
    ScaleRow(args.q + row_of(t), m.of_q[t] * scale, dim, m.q + t * dim);
    ScaleRow(args.k + row_of(t), m.of_k[t], dim, m.k + t * dim);
  }
  for (int64_t i = 0; i < 2 * s.chunk * dim; ++i) {
    m.grad_q[i] = 0;  // also of keys, which follow
  }
  for (int64_t head = chunk.key_head * s.share(); head < (chunk.key_head + 1) * s.share(); ++head) {
    DeltaHeadBackward(args, chunk, head, m);
  }
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    LengthBackward(args.q + row_of(t), m.grad_q + t * dim, m.of_q[t], scale, dim, args.grad_q + row_of(t));
    LengthBackward(args.k + row_of(t), m.grad_k + t * dim, m.of_k[t], T{1}, dim, args.grad_k + row_of(t));
  }
}

// Computes each sequence from its last chunk to its first.
template <typename E>
void Run(const GatedDeltaBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const DeltaShape& s = args.shape;
  const DeltaMemory<T> m(s, args.work.begin);
  for (int64_t head = 0; head < s.value_heads; ++head) {
    args.grad_dt_bias[head] = 0;
    args.grad_a_log[head] = 0;
  }
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    for (int64_t i = 0; i < s.state(); ++i) {
      m.adjoints[i] = 0;
    }
    for (int64_t begin = (s.chunks() - 1) * s.chunk; begin >= 0; begin -= s.chunk) {
      const int64_t tokens = s.length - begin < s.chunk ? s.length - begin : s.chunk;
      for (int64_t key_head = 0; key_head < s.key_heads; ++key_head) {
        DeltaChunkBackward(args, {sequence, begin, tokens, key_head}, m);
      }
    }
  }
}

template <typename E, typename T = Arithmetic<E>>
inline T ReciprocalRmsOf(const E* y, double epsilon, int64_t columns) {
  return 1 / SquareRoot(DotOf(y, y, columns) / static_cast<T>(columns) + static_cast<T>(epsilon));
}

template <typename E>
void Run(const NormGateArgs<E>& args) {
  using T = Arithmetic<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const E* const y = args.y + row * args.columns;
    const E* const gate = args.gate + args.GateOf(row, args.gate_stride);
    const T r = ReciprocalRmsOf(y, args.epsilon, args.columns);
    for (int64_t i = 0; i < args.columns; i += kStep<T>) {
      const Vector<T> g = LoadOfRow(gate, i, args.columns);
      StoreOfRow(
          args.gated + row * args.columns, i, args.columns,
          LoadOfRow(y, i, args.columns) * r * LoadOfRow(args.weight, i, args.columns) * g * Sigmoid<T>(g));
    }
  }
}

// Computed like the backward of RmsNorm (rows.cc), with the gradient that comes through the gate.
template <typename E>
void Run(const NormGateBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  const NormGateArgs<E>& in = args.forward;
  const int64_t columns = in.columns;
  for (int64_t i = 0; i < columns; ++i) {
    args.grad_weight[i] = 0;
  }
  for (int64_t row = 0; row < in.rows; ++row) {
    const E* const y = in.y + row * columns;
    const E* const gate = in.gate + in.GateOf(row, in.gate_stride);
    const E* const grad = args.grad_gated + row * columns;
    E* const grad_gate = args.grad_gate + in.GateOf(row, args.grad_gate_stride);
    const T r = ReciprocalRmsOf(y, in.epsilon, columns);
    Vector<T> dot = {};
    for (int64_t i = 0; i < columns; i += kStep<T>) {
      const Vector<T> g = LoadOfRow(gate, i, columns);
      const Vector<T> sigmoid = Sigmoid<T>(g);
      const Vector<T> normed = LoadOfRow(y, i, columns) * r;
      const Vector<T> of_gated = LoadOfRow(grad, i, columns);
      const Vector<T> weight = LoadOfRow(in.weight, i, columns);
      StoreOfRow(args.grad_weight, i, columns,
                 LoadOfRow(args.grad_weight, i, columns) + of_gated * g * sigmoid * normed);
      StoreOfRow(grad_gate, i, columns,
                 of_gated * normed * weight * (sigmoid + g * sigmoid * (static_cast<T>(1) - sigmoid)));
      dot += of_gated * g * sigmoid * weight * normed;
    }
    const T shrink = Sum<T>(dot) / static_cast<T>(columns);
    for (int64_t i = 0; i < columns; i += kStep<T>) {
      const Vector<T> g = LoadOfRow(gate, i, columns);
      const Vector<T> of_normed =
          LoadOfRow(grad, i, columns) * g * Sigmoid<T>(g) * LoadOfRow(in.weight, i, columns);
      StoreOfRow(args.grad_y + row * columns, i, columns,
                 (of_normed - LoadOfRow(y, i, columns) * r * shrink) * r);
    }
  }
}

}  // namespace

TANDEM_CPU_KERNEL(GatedDeltaArgs)
TANDEM_CPU_KERNEL(GatedDeltaBackwardArgs)
TANDEM_CPU_KERNEL(NormGateArgs)
TANDEM_CPU_KERNEL(NormGateBackwardArgs)

}  // namespace tandem::ops::cpu::TANDEM_ISA
