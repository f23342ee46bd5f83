// SPDX-License-Identifier: Apache-2.0
// Computes AdamW, publishes weights, and computes the norms of each parameter, in one pass. Compiled without
// contraction (CMakeLists.txt), so the bits are those of the CPU's loops.
#include <cuda_runtime.h>

#include <cfloat>

#include "fsdp/cuda/launch.h"
#include "fsdp/cuda/tiles.cuh"
#include "fsdp/quick_quotient.h"

namespace tandem::fsdp::cuda {
namespace {

constexpr int kNorms = 3;  // of ParameterNorms: lane k of a group sums the k-th

__device__ Magnitude& NormOf(ParameterNorms& norms, int k) {
  return k == 0 ? norms.weight : k == 1 ? norms.gradient : norms.update;
}

// Ignores NaN.
__device__ float Max(float a, float b) { return fmaxf(a, b); }
__device__ double Max(double a, double b) { return fmax(a, b); }

// Computes the quotients and the root of one element as the host does.
template <typename T>
class ExactArithmetic {
 public:
  __device__ explicit ExactArithmetic(const AdamWScalars<T>& s) : s_(s) {}
  __device__ T Mean(T sum) { return sum / s_.divisor; }
  __device__ T Direction(T exp_avg, T exp_avg_sq) {
    return (exp_avg / s_.correction1) / (sqrt(exp_avg_sq / s_.correction2) + s_.epsilon);
  }
  __device__ bool exact() const { return true; }

 private:
  const AdamWScalars<T>& s_;
};

// The same without branches, so that elements are computed beside each other; `exact` says afterwards whether
// all of them were within the bounds where the bits are the same.
//
// A quotient by a number that all elements share is a product in double. That is within 2^-52 of the
// quotient, and no quotient of floats is within 2^-49 of the middle between two floats, so that it rounds to
// the same one; subnormal quotients may be such middles, and are outside the bounds (quick_quotient.h). Root
// and last quotient take the steps that nvcc's own take far from the ends of the range.
class QuickArithmetic {
 public:
  __device__ explicit QuickArithmetic(const AdamWScalars<float>& s)
      : divisor_(1 / static_cast<double>(s.divisor)),
        correction1_(1 / static_cast<double>(s.correction1)),
        correction2_(1 / static_cast<double>(s.correction2)),
        epsilon_(s.epsilon),
        least_sum_(Doubled(2 * FLT_MIN * fmaxf(s.divisor, 1))),
        usable_(s.correction1 >= QuickBounds::kLeastCorrection && s.correction1 <= 1 &&
                s.correction2 >= QuickBounds::kLeastCorrection && s.correction2 <= 1 &&
                s.epsilon >= QuickBounds::kLeastEpsilon && s.epsilon <= 1 && s.divisor >= 1) {}

  __device__ float Mean(float sum) {
    low_sum_ = min(low_sum_, Doubled(sum));
    return Product(sum, divisor_);
  }
  __device__ float Direction(float exp_avg, float exp_avg_sq) {
    low_exp_avg_ = min(low_exp_avg_, Doubled(exp_avg));
    low_exp_avg_sq_ = min(low_exp_avg_sq_, Doubled(exp_avg_sq));
    high_ = fmaxf(high_, fmaxf(fabsf(exp_avg), exp_avg_sq));
    return Quotient(Product(exp_avg, correction1_), Root(Product(exp_avg_sq, correction2_)) + epsilon_);
  }
  __device__ bool exact() const {
    return usable_ && low_sum_ >= least_sum_ && low_exp_avg_ >= Doubled(QuickBounds::kLeastExpAvg) &&
           low_exp_avg_sq_ >= Doubled(QuickBounds::kLeastExpAvgSq) && high_ <= QuickBounds::kLargestMoment;
  }

 private:
  // Has the order of |x|, except that zero is above all.
  static __device__ unsigned Doubled(float x) { return 2 * __float_as_uint(x) - 1; }
  static __device__ float Product(float x, double factor) {
    return static_cast<float>(static_cast<double>(x) * factor);
  }
  static __device__ float Root(float x) {
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float root = __fmul_rn(x, r);
    const float better = __fmaf_rn(__fmaf_rn(-root, root, x), __fmul_rn(r, 0.5F), root);
    return x == 0 ? x : better;
  }
  static __device__ float Quotient(float x, float y) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
    return QuickQuotient(x, y, r);
  }

  const double divisor_;
  const double correction1_;
  const double correction2_;
  const float epsilon_;
  const unsigned least_sum_;
  const bool usable_;
  unsigned low_sum_ = ~0U;
  unsigned low_exp_avg_ = ~0U;
  unsigned low_exp_avg_sq_ = ~0U;
  float high_ = 0;
};

template <typename T>
struct QuickestOf {
  using Type = ExactArithmetic<T>;
};
template <>
struct QuickestOf<float> {
  using Type = QuickArithmetic;
};
template <typename T>
using Quickest = typename QuickestOf<T>::Type;

// The state of one element before and after its step.
template <typename T>
struct Element {
  T weight;
  T exp_avg;
  T exp_avg_sq;
  T mean;    // of the gradient, not clipped
  T update;  // new - old weight

  template <typename A>
  __device__ void Step(const AdamWScalars<T>& s, A& arithmetic, bool applied, T sum) {
    mean = arithmetic.Mean(sum);
    update = 0;
    if (!applied) {
      return;
    }
    const T gradient = s.clip * mean;
    exp_avg = s.beta1 * exp_avg + s.one_minus_beta1 * gradient;
    exp_avg_sq = s.beta2 * exp_avg_sq + s.one_minus_beta2 * gradient * gradient;
    const T direction = arithmetic.Direction(exp_avg, exp_avg_sq);
    const T old = weight;
    weight = old - s.learning_rate * (direction + s.weight_decay * old);
    update = weight - old;
  }
};

// The largest magnitudes of all elements that the thread has stepped, in the order of ParameterNorms.
template <typename T>
struct ThreadMaxima {
  T max_abs[kNorms] = {};

  __device__ void Take(T weight, T mean, T update) {
    max_abs[0] = Max(max_abs[0], abs(weight));
    max_abs[1] = Max(max_abs[1], abs(mean));
    max_abs[2] = Max(max_abs[2], abs(update));
  }
};

// A warp's packed round.
template <typename T>
struct Round {
  RoundPacks<T> sums;  // of gradients; then their means
  RoundPacks<T> weights;
  RoundPacks<T> exp_avgs;
  RoundPacks<T> exp_avg_sqs;
  RoundPacks<T> updates;

  __device__ void Read(const OptimizerPointers<T>& pointers, int64_t at) {
    sums.Read(pointers.gradients + at);
    weights.Read(pointers.weights + at);
    exp_avgs.Read(pointers.exp_avg + at);
    exp_avg_sqs.Read(pointers.exp_avg_sq + at);
  }
  __device__ void Step(const AdamWScalars<T>& scalars, Quickest<T>& arithmetic, bool applied) {
#pragma unroll
    for (int p = 0; p < RoundPacks<T>::kCount; ++p) {
#pragma unroll
      for (int k = 0; k < kPackSize<T>; ++k) {
        Element<T> element{weights.packs[p].e[k], exp_avgs.packs[p].e[k], exp_avg_sqs.packs[p].e[k]};
        element.Step(scalars, arithmetic, applied, sums.packs[p].e[k]);
        weights.packs[p].e[k] = element.weight;
        exp_avgs.packs[p].e[k] = element.exp_avg;
        exp_avg_sqs.packs[p].e[k] = element.exp_avg_sq;
        sums.packs[p].e[k] = element.mean;
        updates.packs[p].e[k] = element.update;
      }
    }
  }
  __device__ void TakeMaxima(ThreadMaxima<T>& maxima) const {
#pragma unroll
    for (int p = 0; p < RoundPacks<T>::kCount; ++p) {
#pragma unroll
      for (int k = 0; k < kPackSize<T>; ++k) {
        maxima.Take(weights.packs[p].e[k], sums.packs[p].e[k], updates.packs[p].e[k]);
      }
    }
  }
  __device__ void Write(const OptimizerPointers<T>& pointers, bool applied, int64_t at) const {
    if (applied) {
      exp_avgs.Write(pointers.exp_avg + at);
      exp_avg_sqs.Write(pointers.exp_avg_sq + at);
      weights.Write(pointers.weights + at);
    }
    if (pointers.published == nullptr) {
      return;
    }
    RoundPacks<T, Bf16> published;
#pragma unroll
    for (int p = 0; p < RoundPacks<T>::kCount; ++p) {
#pragma unroll
      for (int k = 0; k < kPackSize<T>; ++k) {
        published.packs[p].e[k] = RoundToBf16(static_cast<float>(weights.packs[p].e[k]));
      }
    }
    published.Write(pointers.published + at);
  }
};

// The sums of the lane's squares, in the order of ParameterNorms.
struct LaneSquares {
  double sums[kNorms] = {};
};

// Steps the group's elements [begin, end) one by one.
template <bool kWithNorms, typename T>
__device__ LaneSquares StepElements(const AdamWScalars<T>& scalars, bool applied,
                                    const OptimizerPointers<T>& pointers, int64_t begin, int64_t end,
                                    ThreadMaxima<T>& maxima) {
  ExactArithmetic<T> arithmetic(scalars);
  LaneSquares squares;
#pragma unroll 1
  for (int64_t i = begin + Lane(); i < end; i += kLanes) {
    Element<T> element{pointers.weights[i], pointers.exp_avg[i], pointers.exp_avg_sq[i]};
    element.Step(scalars, arithmetic, applied, pointers.gradients[i]);
    if (applied) {
      pointers.exp_avg[i] = element.exp_avg;
      pointers.exp_avg_sq[i] = element.exp_avg_sq;
      pointers.weights[i] = element.weight;
    }
    if (pointers.published != nullptr) {
      pointers.published[i] = RoundToBf16(static_cast<float>(element.weight));
    }
    if constexpr (kWithNorms) {
      AddSquare(squares.sums[0], element.weight);
      AddSquare(squares.sums[1], element.mean);
      AddSquare(squares.sums[2], element.update);
      maxima.Take(element.weight, element.mean, element.update);
    }
  }
  return squares;
}

// Steps the warp's packed round at element `at`. If it needs exact arithmetic, writes nothing and returns
// false.
template <bool kWithNorms, typename T>
__device__ bool StepRound(const AdamWScalars<T>& scalars, Quickest<T> arithmetic, bool applied,
                          const OptimizerPointers<T>& pointers, int64_t at, Exchange<T>& exchange,
                          LaneSquares& squares, ThreadMaxima<T>& maxima) {
  Round<T> round;
  round.Read(pointers, at);
  round.Step(scalars, arithmetic, applied);
  if (!__all_sync(0xFFFFFFFF, arithmetic.exact())) {
    return false;
  }
  round.Write(pointers, applied, at);
  if constexpr (kWithNorms) {
    round.TakeMaxima(maxima);
    exchange.EachOfLane(round.weights, [&](T value) { AddSquare(squares.sums[0], value); });
    exchange.EachOfLane(round.sums, [&](T value) { AddSquare(squares.sums[1], value); });
    exchange.EachOfLane(round.updates, [&](T value) { AddSquare(squares.sums[2], value); });
  }
  return true;
}

// One block for each tile. Writes its norms to tile_norms[blockIdx.x] if they are wanted.
template <bool kWithNorms, typename T>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 4 ? 3 : 1)
    StepTile(TiledShard shard, AdamWConfig config, OptimizerPointers<T> pointers, bool packed) {
  __shared__ Exchange<T> exchanges[kWithNorms ? kWarps : 1];
  __shared__ DoubleDouble shared[kNorms][kGroups];
  __shared__ T shared_maxima[kNorms][kWarps];
  const Chunks chunks(shard, blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const RunInputs& inputs = *pointers.inputs;
  AdamWScalars<T> scalars(config, inputs.learning_rate, inputs.correction1, inputs.correction2,
                          *pointers.outcome);
  if (!chunks.decays) {
    scalars.weight_decay = 0;
  }
  const Quickest<T> arithmetic(scalars);
  const bool applied = pointers.outcome->applied;
  DoubleDouble sum;  // of the lane's norm
  ThreadMaxima<T> maxima;
  for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
    const int64_t of_warp = base + warp * (32 / kLanes);
    const int64_t chunk = base + Group();
    const bool whole = chunk <= chunks.last;
    LaneSquares squares;
    const bool done =
        packed && chunks.Packed(of_warp) &&
        StepRound<kWithNorms>(scalars, arithmetic, applied, pointers, of_warp * kGranule - shard.begin,
                              exchanges[kWithNorms ? warp : 0], squares, maxima);
    if (!done && whole) {
      squares = StepElements<kWithNorms>(scalars, applied, pointers, chunks.begin(chunk) - shard.begin,
                                         chunks.end(chunk) - shard.begin, maxima);
    }
    if constexpr (kWithNorms) {
      for (double& lane : squares.sums) {
        lane = AddLanes(lane);
      }
      if (whole) {
        sum.Add(Lane() == 0 ? squares.sums[0] : Lane() == 1 ? squares.sums[1] : squares.sums[2]);
      }
    }
  }
  if constexpr (!kWithNorms) {
    return;
  }
  if (Lane() < kNorms) {
    shared[Lane()][Group()] = sum;
  }
#pragma unroll
  for (int k = 0; k < kNorms; ++k) {
    T max_abs = maxima.max_abs[k];
    for (int other = 16; other > 0; other /= 2) {
      max_abs = Max(max_abs, __shfl_xor_sync(0xFFFFFFFF, max_abs, other));
    }
    if (threadIdx.x % 32 == 0) {
      shared_maxima[k][warp] = max_abs;
    }
  }
  __syncthreads();
  if (threadIdx.x < kNorms) {
    Magnitude total;
    for (int group = 0; group < kGroups; ++group) {
      total.squares.Add(shared[threadIdx.x][group]);
    }
    T max_abs = 0;
    for (int w = 0; w < kWarps; ++w) {
      max_abs = Max(max_abs, shared_maxima[threadIdx.x][w]);
    }
    total.max_abs = max_abs;
    NormOf(pointers.tile_norms[blockIdx.x], static_cast<int>(threadIdx.x)) = total;
  }
}

// One block for each parameter.
__global__ void AddTileNorms(const ParameterNorms* tiles, const int* first_tiles, ParameterNorms* norms) {
  __shared__ Magnitude shared[kThreads];
  ParameterNorms sum;
  for (int tile = first_tiles[blockIdx.x] + static_cast<int>(threadIdx.x); tile < first_tiles[blockIdx.x + 1];
       tile += kThreads) {
    sum.weight.Add(tiles[tile].weight);
    sum.gradient.Add(tiles[tile].gradient);
    sum.update.Add(tiles[tile].update);
  }
  const Magnitude weight = AddThreads(sum.weight, shared);
  const Magnitude gradient = AddThreads(sum.gradient, shared);
  const Magnitude update = AddThreads(sum.update, shared);
  if (threadIdx.x == 0) {
    norms[blockIdx.x] = {weight, gradient, update};
  }
}

}  // namespace

template <typename T>
int LaunchOptimizerStep(const TiledShard& shard, const AdamWConfig& config,
                        const OptimizerPointers<T>& pointers, const int* first_tiles, int num_parameters,
                        Stream stream) {
  const bool with_norms = pointers.update_norms != nullptr;
  if (shard.num_tiles > 0) {
    const auto step = with_norms ? StepTile<true, T> : StepTile<false, T>;
    step<<<static_cast<unsigned>(shard.num_tiles), kThreads, 0, stream>>>(
        shard, config, pointers,
        ArePacks({pointers.gradients, pointers.weights, pointers.exp_avg, pointers.exp_avg_sq,
                  pointers.published}));
  }
  if (with_norms) {
    AddTileNorms<<<static_cast<unsigned>(num_parameters), kThreads, 0, stream>>>(
        pointers.tile_norms, first_tiles, pointers.update_norms);
  }
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                                          \
  template int LaunchOptimizerStep(const TiledShard&, const AdamWConfig&, const OptimizerPointers<T>&, \
                                   const int*, int, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::fsdp::cuda
