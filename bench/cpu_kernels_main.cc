// SPDX-License-Identifier: Apache-2.0
// Times the host's kernels on one thread in fp32, each beside LibTorch's kernels for the same operation:
//   tandem-bench-cpu-kernels [SHAPE ...]      small, demo, layer, long, longer; all of them if omitted
// Prints one JSON object for each shape and operation: the medians of repeated runs in ms, of ours and of
// LibTorch's in turns, and how many times as fast ours is; with the processor, the commit and the date
// (result_line.h). LibTorch's forward stores what its backward needs, as ours does.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/result_line.h"
#include "nlohmann/json.hpp"
#include "ops/attention_work.h"
#include "ops/operations.h"
#include "ops/rotary_tables.h"
#include "ops/tensors.h"

namespace {

using tandem::bench::Median;
using tandem::ops::AttentionShape;
using tandem::ops::DeviceKind;
using tandem::ops::Workspace;
namespace ops = tandem::ops;

struct Shape {
  const char* name;
  AttentionShape attention;
  int64_t hidden;
  int64_t inner;
  int64_t vocabulary;
};

constexpr Shape kShapes[] = {
    {"small", {2, 64, 2, 2, 32}, 64, 160, 256},
    {"demo", {4, 256, 4, 4, 32}, 128, 352, 256},  // examples/headers.yaml
    {"layer", {1, 1024, 8, 2, 128}, 1024, 2816, 8192},
    {"long", {1, 4096, 4, 1, 64}, 256, 704, 8192},
    {"longer", {1, 8192, 2, 2, 64}, 128, 352, 256},
};

// That this thread, the only one, computes: what else runs on the machine does not count.
double Milliseconds(const std::function<void()>& call) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  const double begin = now();
  call();
  return now() - begin;
}

class Bench {
 public:
  Bench(const Shape& shape, std::string machine)
      : s_(shape),
        machine_(std::move(machine)),
        tokens_(shape.attention.tokens()),
        query_(shape.attention.context_columns()),
        qkv_(shape.attention.qkv_columns()) {}

  void Run() {
    Norm();
    Rotation();
    Attention();
    Activation();
    Loss();
  }

 private:
  void Compare(const char* name, const std::function<void()>& ours, const std::function<void()>& aten) const {
    constexpr int kWarmups = 2;
    constexpr int kTurns = 15;
    std::vector<double> own;
    std::vector<double> theirs;
    for (int turn = -kWarmups; turn < kTurns; ++turn) {
      const double a = Milliseconds(ours);
      const double b = Milliseconds(aten);
      if (turn < 0) {
        continue;
      }
      own.push_back(a);
      theirs.push_back(b);
    }
    const nlohmann::ordered_json line = {{"shape", s_.name},
                                         {"operation", name},
                                         {"ms", Median(own)},
                                         {"aten_ms", Median(theirs)},
                                         {"times_as_fast", Median(theirs) / Median(own)}};
    std::printf("%s\n", tandem::bench::ResultLine(line, machine_).c_str());
    std::fflush(stdout);
  }

  void Norm() const {
    const at::Tensor x = at::randn({tokens_, s_.hidden});
    const at::Tensor grad = at::randn({tokens_, s_.hidden});
    const at::Tensor weight = at::randn({s_.hidden});
    at::Tensor y = at::empty_like(x);
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor grad_weight = at::zeros({s_.hidden});
    Compare(
        "rms_norm", [&] { ops_.RmsNorm(x, weight, {1e-5}, y)(); },
        [&] { at::_fused_rms_norm(x, {s_.hidden}, weight, 1e-5); });
    const at::Tensor reciprocals = std::get<1>(at::_fused_rms_norm(x, {s_.hidden}, weight, 1e-5));
    Compare(
        "rms_norm backward (ATen: has none for the host; its products and sums)",
        [&] { ops_.RmsNormBackward(grad, x, weight, {1e-5}, {}, false, grad_x, false, grad_weight, {})(); },
        [&] {
          const at::Tensor normed = x * reciprocals;
          const at::Tensor weighted = grad * weight;
          const at::Tensor mean = (weighted * normed).mean(1, /*keepdim=*/true);
          const at::Tensor of_x = (weighted - normed * mean) * reciprocals;
          (grad * normed).sum(0);
        });
  }

  void Rotation() const {
    const AttentionShape& a = s_.attention;
    at::Tensor cosines = at::empty({a.length, a.head_dim / 2});
    at::Tensor sines = at::empty({a.length, a.head_dim / 2});
    ops::RopeTables(500000, {}, cosines, sines);
    at::Tensor qkv = at::randn({tokens_, qkv_});
    const int64_t heads = a.heads + a.kv_heads;
    const at::Tensor x =
        qkv.narrow(1, 0, heads * a.head_dim).view({a.sequences, a.length, heads, a.head_dim});
    const at::Tensor c = cosines.view({1, a.length, 1, -1});
    const at::Tensor s = sines.view({1, a.length, 1, -1});
    Compare(
        "rope", [&] { ops_.Rope(cosines, sines, heads, a.head_dim, qkv)(); },
        [&] {
          const at::Tensor first = x.narrow(3, 0, a.head_dim / 2);
          const at::Tensor second = x.narrow(3, a.head_dim / 2, a.head_dim / 2);
          at::cat({first * c - second * s, second * c + first * s}, 3);
        });
  }

  void Attention() const {
    const AttentionShape& a = s_.attention;
    const at::Tensor qkv = at::randn({tokens_, qkv_});
    const at::Tensor grad = at::randn({tokens_, query_});
    at::Tensor context = at::empty({tokens_, query_});
    at::Tensor lse = at::empty({a.sequences, a.heads, a.length});
    at::Tensor grad_qkv = at::empty_like(qkv);
    const int64_t bytes = std::max(ops::AttentionWorkBytes(DeviceKind::kCpu, a, 4),
                                   ops::AttentionBackwardWorkBytes(DeviceKind::kCpu, a, 4));
    const at::Tensor memory = at::empty({bytes + 256}, at::TensorOptions(at::kByte));
    auto* const begin = static_cast<char*>(memory.mutable_data_ptr());
    const Workspace work{.begin = begin + (256 - reinterpret_cast<uintptr_t>(begin) % 256), .bytes = bytes};
    const int64_t group = a.heads / a.kv_heads;
    // LibTorch's has as many key-value heads as query heads.
    const auto heads = [&](int64_t from, int64_t count) {
      return qkv.narrow(1, from * a.head_dim, count * a.head_dim)
          .view({a.sequences, a.length, count, a.head_dim})
          .transpose(1, 2)
          .repeat_interleave(a.heads / count, 1);
    };
    const at::Tensor q = heads(0, a.heads);
    const at::Tensor k = heads(a.heads, a.kv_heads);
    const at::Tensor v = heads(a.heads + a.kv_heads, a.kv_heads);
    const auto forward = [&] { return at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true); };
    Compare(
        "attention", [&] { ops_.Attention(a, qkv, /*documents=*/{}, context, lse, work)(); },
        [&] { forward(); });
    const auto result = forward();
    const at::Tensor grad_heads = grad.view({a.sequences, a.length, a.heads, a.head_dim}).transpose(1, 2);
    Compare(
        group > 1 ? "attention backward (ATen: without the sums over query heads)" : "attention backward",
        [&] { ops_.AttentionBackward(a, qkv, /*documents=*/{}, context, lse, grad, grad_qkv, work)(); },
        [&] {
          at::_scaled_dot_product_flash_attention_for_cpu_backward(grad_heads, q, k, v, std::get<0>(result),
                                                                   std::get<1>(result), 0.0, true);
        });
  }

  void Activation() const {
    const at::Tensor gate_up = at::randn({tokens_, 2 * s_.inner});
    const at::Tensor gate = gate_up.narrow(1, 0, s_.inner);
    const at::Tensor up = gate_up.narrow(1, s_.inner, s_.inner);
    const at::Tensor grad_activated = at::randn({tokens_, s_.inner});
    at::Tensor activated = at::empty({tokens_, s_.inner});
    at::Tensor grad = at::empty_like(gate_up);
    Compare(
        "swiglu", [&] { ops_.SwiGlu(gate_up, activated)(); }, [&] { at::silu(gate) * up; });
    Compare(
        "swiglu backward, activation recomputed",
        [&] { ops_.SwiGluBackward(gate_up, grad_activated, grad, activated)(); },
        [&] {
          const at::Tensor silu = at::silu(gate);
          const at::Tensor product = silu * up;
          const at::Tensor grad_up = grad_activated * silu;
          at::silu_backward(grad_activated * up, gate);
        });
  }

  void Loss() const {
    at::Tensor logits = at::randn({tokens_, s_.vocabulary});
    const at::Tensor targets = at::randint(s_.vocabulary, {s_.attention.sequences, s_.attention.length},
                                           at::TensorOptions(at::kLong));
    at::Tensor lse = at::empty({tokens_});
    at::Tensor loss = at::empty({1}, at::TensorOptions(at::kDouble));
    at::Tensor grad = at::empty_like(logits);
    Compare(
        "cross entropy and its backward", [&] { ops_.CrossEntropy(logits, targets, lse, loss, grad)(); },
        [&] {
          const at::Tensor flat = targets.view({-1});
          const at::Tensor logarithms = at::_log_softmax(logits, 1, /*half_to_float=*/false);
          const auto [value, weight] = at::nll_loss_forward(logarithms, flat, {}, at::Reduction::Mean, -100);
          const at::Tensor grad_logarithms =
              at::nll_loss_backward(at::ones({}), logarithms, flat, {}, at::Reduction::Mean, -100, weight);
          at::_log_softmax_backward_data(grad_logarithms, logarithms, 1, at::kFloat);
        });
  }

  const Shape s_;
  const std::string machine_;
  const int64_t tokens_;
  const int64_t query_;
  const int64_t qkv_;
  const ops::Operations& ops_ = ops::CpuOperations();
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<Shape> shapes;
  for (int i = 1; i < argc; ++i) {
    const Shape* const found = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& shape) {
      return std::strcmp(shape.name, argv[i]) == 0;
    });
    if (found == std::end(kShapes)) {
      std::fprintf(stderr, "%s: allowed: small, demo, layer, long, longer\n", argv[i]);
      return 2;
    }
    shapes.push_back(*found);
  }
  if (argc == 1) {
    shapes.assign(std::begin(kShapes), std::end(kShapes));
  }
  at::set_num_threads(1);
  const c10::InferenceMode inference;
  const std::string machine = tandem::bench::ProcessorName();
  for (const Shape& shape : shapes) {
    Bench(shape, machine).Run();
  }
  return 0;
}
