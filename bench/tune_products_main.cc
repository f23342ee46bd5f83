// SPDX-License-Identifier: Apache-2.0
// Finds out how much slower the matrix products of a model's layers are than with the best algorithm of
// cuBLASLt, on this machine's first GPU, and prints lines for ops/cuda/products.txt that choose it:
//   tandem-tune-products TOKENS,OUTPUTS,INPUTS,SECONDS[,residual][,PRODUCT ...] ...
// Each argument is y = x W^T in bfloat16 with its gradients, or only the PRODUCTs that it lists: y (plus a
// residual, if that is given), grad_x = grad_y W, grad_weight = grad_y^T x in bfloat16, and
// grad_weight_in_float.
//
// Asks cuBLASLt whether it accepts each setting of each algorithm (algorithm_walk.h). Once all settings have
// been asked for a product, later products with the same types, transpositions and addend ask only for those
// that were accepted. Accepted settings are timed on larger and larger parts of the product (Levels); those
// slower than a level's limit are dropped. Then the fastest, the table's and the rules' first are timed in
// turns. Settings that do not repeat their bits, or whose result differs from the rules', are not for a
// table. After SECONDS for a product, the settings that are left, the slowest of the last level first, are
// counted but not timed. With 0 seconds no setting is asked for, and the rules' first proposals are compared.
//
// Prints a JSON object for each product to standard error: the medians, how much of the best the table's
// setting reaches (or the rules' first, if the table has none), and how many settings were asked for, taken,
// timed and left out. LibTorch's mm takes part in the turns if it computes the product (bfloat16, no addend):
// "aten_ms". The GPU has worked for half a second before the turns; "rested" has the times of the table's,
// the rules' first and mm, each after the GPU was idle for a tenth of a second. Prints a line of the table to
// standard output if the best is more than a hundredth faster than the rules' first.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/algorithm_walk.h"
#include "bench/product_task.h"
#include "bench/result_line.h"
#include "device/cuda/check.h"
#include "device/cuda/device.h"
#include "nlohmann/json.hpp"
#include "ops/cuda/product_plan.h"
#include "ops/linear_work.h"
#include "ops/product.h"
#include "ops/product_table.h"
#include "ops/tensors.h"

namespace {

using tandem::bench::Algorithm;
using tandem::bench::AlgorithmWalk;
using tandem::bench::AllAlgorithms;
using tandem::bench::Clock;
using tandem::bench::Median;
using tandem::bench::ProductTask;
using tandem::bench::ReadProductTask;
using tandem::device::CheckCuda;
using tandem::ops::Array;
using tandem::ops::ProductArgs;
using tandem::ops::ProductTable;
using tandem::ops::TensorOf;
using tandem::ops::Workspace;
using tandem::ops::cuda::CheckProduct;
using tandem::ops::cuda::ProductMachine;
using tandem::ops::cuda::ProductOperands;
using tandem::ops::cuda::ProductPlan;

constexpr double kWorthIt = 0.99;
constexpr int kTurns = 9;
constexpr size_t kFinalists = 12;
constexpr int kMostProposed = 64;
constexpr double kShareOfParts = 0.8;    // of a product's time
constexpr double kRounding = 1.0 / 128;  // twice that of bfloat16, of a norm
// Of the elements' root mean square: eight times what bfloat16 rounds of one that is six times as large.
constexpr double kOfElement = 0.125;
constexpr std::chrono::milliseconds kHeat{500};
constexpr std::chrono::milliseconds kRest{100};

// A part of a product: rows of the output, and of the sums' elements.
struct Level {
  int64_t rows;
  int64_t sums;
  double limit;  // the next level has what takes at most so many times as long as the fastest
};

// Parts have so many rows that each multiprocessor computes one tile of 128 x 256 of them, where one tile
// more is twice the time, and then eight. Sums of 1,024 elements are short: what comes before and behind them
// takes up to half as long again.
std::vector<Level> Levels(const ProductOperands& product, int64_t multiprocessors) {
  std::vector<Level> levels;
  for (const auto& [tiles, sums, limit] :
       {std::tuple<int64_t, int64_t, double>{1, 1024, 3.0}, {8, 1024, 2.0}, {8, 4096, 1.3}}) {
    const int64_t rows = (tiles * multiprocessors * 128 / product.output.columns + 1) * 256;
    const Level level{std::min(product.output.rows, rows), std::min(product.left.columns, sums), limit};
    if (level.sums < product.left.columns || level.rows < product.output.rows) {
      levels.push_back(level);
    }
  }
  levels.push_back({product.output.rows, product.left.columns, 0});
  return levels;
}

struct Candidate {
  Algorithm algorithm;
  double ms = 0;      // of the last level; 0 where cuBLASLt takes it for the whole product alone
  bool sound = true;  // repeats its bits, and computes what the rules' first does
};

bool Faster(const Candidate& left, const Candidate& right) { return left.ms < right.ms; }

class Tuner {
 public:
  Tuner() : memory_(at::empty({tandem::ops::kGpuLinearWorkBytes}, Of(at::kByte))) {
    CheckProduct(cublasLtCreate(&handle_), "no handle");
    for (cudaEvent_t& event : events_) {
      CheckCuda(cudaEventCreate(&event), "event");
    }
    CheckCuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, 0), "device");
  }
  ~Tuner() {
    for (const cudaEvent_t event : events_) {
      cudaEventDestroy(event);
    }
    cublasLtDestroy(handle_);
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  void Tune(const ProductTask& task) {
    const at::Tensor x = Random(task.tokens, task.inputs);
    const at::Tensor weight = Random(task.outputs, task.inputs);
    const at::Tensor grad_y = Random(task.tokens, task.outputs);
    if (task.Has("y")) {
      at::Tensor y = Random(task.tokens, task.outputs);
      Search(task.residual ? "y, residual" : "y",
             {x, weight.t(), task.residual ? Random(task.tokens, task.outputs) : at::Tensor(), y, Work()},
             task.seconds);
    }
    if (task.Has("grad_x")) {
      at::Tensor grad_x = Random(task.tokens, task.inputs);
      Search("grad x", {grad_y, weight, {}, grad_x, Work()}, task.seconds);
    }
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      const bool in_float = type == at::kFloat;
      if (task.Has(in_float ? "grad_weight_in_float" : "grad_weight")) {
        at::Tensor grad_weight = at::empty({task.outputs, task.inputs}, Of(type));
        Search(in_float ? "grad weight in float" : "grad weight", {grad_y.t(), x, {}, grad_weight, Work()},
               task.seconds);
      }
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

 private:
  static at::TensorOptions Of(at::ScalarType type) { return at::TensorOptions(at::kCUDA).dtype(type); }
  static at::Tensor Random(int64_t rows, int64_t columns) {
    return at::randn({rows, columns}, Of(at::kBFloat16));
  }

  Workspace Work() { return {.begin = memory_.mutable_data_ptr(), .bytes = memory_.numel()}; }

  void Search(const char* name, const ProductArgs& matrices, double seconds) {
    const ProductOperands product(matrices);
    const ProductPlan rules(handle_, product, nullptr);
    const std::vector<Algorithm> proposed = rules.Proposed(handle_, product, kMostProposed);
    const Algorithm* const of_table = ProductTable::OfBuild().Find(ProductMachine(), product.text());
    const Algorithm chosen = of_table != nullptr ? *of_table : proposed.front();
    nlohmann::ordered_json line = {{"product", name},
                                   {"m", product.output.rows},
                                   {"k", product.left.columns},
                                   {"n", product.output.columns},
                                   {"in_table", of_table != nullptr}};

    const Clock::time_point begin = Clock::now();
    const auto within = [&](double share) {
      return begin +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(share * seconds));
    };
    const std::vector<Level> levels = Levels(product, multiprocessors_);
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < levels.size(); ++i) {
      const Level& level = levels[i];
      const auto part = [&](const Array& matrix, int64_t rows, int64_t columns) {
        return matrix.defined() ? matrix.Rows(0, rows).Columns(0, columns) : matrix;
      };
      const Array result = part(matrices.output, level.rows, product.output.columns);
      const ProductOperands operands(
          {part(matrices.a, level.rows, level.sums), part(matrices.b, level.sums, product.right.columns),
           part(matrices.addend, level.rows, product.output.columns), result, Work()});
      const ProductPlan of_part(handle_, operands, nullptr);
      const Clock::time_point end = within(i + 1 < levels.size() ? kShareOfParts : 1);
      nlohmann::ordered_json said = {{"m", level.rows}, {"k", level.sums}};
      if (i == 0) {
        std::vector<Algorithm> first = proposed;
        if (of_table != nullptr) {
          first.push_back(chosen);
        }
        candidates = TimeAll(product, rules, operands, of_part, first, end, line);
      } else {
        size_t timed = 0;
        while (timed < candidates.size() && (timed < kFinalists || Clock::now() < end)) {
          candidates[timed].ms = TimeOf(candidates[timed].algorithm, operands, of_part, /*runs=*/1);
          ++timed;
        }
        said["left_out_by_time"] = candidates.size() - timed;
        candidates.resize(timed);
      }
      said["timed"] = candidates.size();
      std::stable_sort(candidates.begin(), candidates.end(), Faster);
      if (i + 1 < levels.size()) {
        const auto fastest = std::find_if(candidates.begin(), candidates.end(),
                                          [](const Candidate& candidate) { return candidate.ms > 0; });
        const double limit = fastest == candidates.end() ? 0 : level.limit * fastest->ms;
        const auto slow = std::find_if(candidates.begin(), candidates.end(),
                                       [&](const Candidate& candidate) { return candidate.ms > limit; });
        said["fastest_ms"] = fastest == candidates.end() ? 0 : fastest->ms;
        said["slower_than_limit"] = candidates.end() - slow;
        candidates.erase(slow, candidates.end());
      }
      line["levels"].push_back(said);
    }
    line["seconds"] = std::chrono::duration<double>(Clock::now() - begin).count();
    Choose(matrices, rules, proposed.front(), chosen, std::move(candidates), line);
  }

  // What cuBLASLt takes, with `first` among it, timed on a part of the product.
  std::vector<Candidate> TimeAll(const ProductOperands& product, const ProductPlan& rules,
                                 const ProductOperands& part, const ProductPlan& of_part,
                                 const std::vector<Algorithm>& first, Clock::time_point end,
                                 nlohmann::ordered_json& line) {
    std::vector<Algorithm>& all = all_[product.output.type];
    if (all.empty()) {
      all = AllAlgorithms(handle_, product.output.type);
    }
    std::vector<Algorithm>& of_such =
        taken_[{product.output.type, product.left.transposed, product.right.transposed, product.adds}];
    const std::vector<Algorithm>& settings = of_such.empty() ? all : of_such;
    std::vector<Candidate> candidates;
    for (const Algorithm& algorithm : first) {
      candidates.push_back({algorithm, 0});
    }
    std::vector<Algorithm> taken;
    size_t left_out = 0;
    AlgorithmWalk walk(settings, rules, end);
    while (const std::optional<Algorithm> algorithm = walk.Next()) {
      taken.push_back(*algorithm);
      if (std::find(first.begin(), first.end(), *algorithm) != first.end()) {
        continue;
      }
      if (Clock::now() > end) {
        ++left_out;
      } else {
        candidates.push_back({*algorithm, TimeOf(*algorithm, part, of_part, /*runs=*/2)});
      }
    }
    line["settings"] = all.size();
    line["asked"] = walk.asked();
    line["of_those_taken_before"] = !of_such.empty();
    line["taken"] = taken.size();
    line["left_out_by_time"] = left_out;
    if (walk.asked() == all.size()) {
      of_such = std::move(taken);
    }
    return candidates;
  }

  // Of the last run, in ms; 0 where cuBLASLt does not take it, infinity where it does not run it after all.
  // any: a plan of the operands.
  double TimeOf(const Algorithm& algorithm, const ProductOperands& operands, const ProductPlan& any,
                int runs) {
    if (!any.Takes(handle_, algorithm)) {
      return 0;
    }
    const ProductPlan plan(handle_, operands, &algorithm);
    try {
      return Time([&] { RunPlan(plan, operands); }, runs);
    } catch (const std::exception&) {
      return std::numeric_limits<double>::infinity();
    }
  }

  // The fastest of the candidates, which are sorted, in turns with the rules' first, the table's and mm.
  void Choose(const ProductArgs& matrices, const ProductPlan& rules, const Algorithm& first,
              const Algorithm& chosen, std::vector<Candidate> candidates, nlohmann::ordered_json& line) {
    const ProductOperands product(matrices);
    if (candidates.size() > kFinalists) {
      candidates.resize(kFinalists);
    }
    for (const Algorithm& algorithm : {first, chosen}) {
      if (std::none_of(candidates.begin(), candidates.end(),
                       [&](const Candidate& candidate) { return candidate.algorithm == algorithm; })) {
        candidates.push_back({algorithm});
      }
    }
    // A table holds what is the same in every run, and what the rules' first computes.
    at::Tensor output = TensorOf(matrices.output);
    RunAnew(rules, product, output);
    const at::Tensor expected = output.clone();
    for (Candidate& candidate : candidates) {
      candidate.sound = candidate.algorithm == first || IsSound(candidate, product, expected, output);
    }
    const bool has_mm = product.output.type == CUDA_R_16BF && !product.adds;
    const auto mm = [&] { at::mm_out(output, TensorOf(matrices.a), TensorOf(matrices.b)); };
    const auto run = [&](const Algorithm& algorithm) {
      return [this, &product, plan = std::make_shared<ProductPlan>(handle_, product, &algorithm)] {
        RunPlan(*plan, product);
      };
    };
    std::vector<std::function<void()>> all;
    for (const Candidate& candidate : candidates) {
      all.push_back(run(candidate.algorithm));
    }
    std::vector<std::function<void()>> rested = {run(first), run(chosen)};
    if (has_mm) {
      all.emplace_back(mm);
      rested.emplace_back(mm);
    }
    const std::vector<double> rested_ms = InTurns(rested, kRest);
    for (const Clock::time_point end = Clock::now() + kHeat; Clock::now() < end;) {
      Time(all.front(), /*runs=*/1);
    }
    const std::vector<double> all_ms = InTurns(all, std::chrono::milliseconds{0});
    for (size_t i = 0; i < candidates.size(); ++i) {
      candidates[i].ms = all_ms[i];
    }
    const auto ms_of = [&](const Algorithm& algorithm) {
      return std::find_if(candidates.begin(), candidates.end(),
                          [&](const Candidate& candidate) { return candidate.algorithm == algorithm; })
          ->ms;
    };
    const auto best = std::min_element(candidates.begin(), candidates.end(),
                                       [](const Candidate& left, const Candidate& right) {
                                         return left.sound != right.sound ? left.sound : left.ms < right.ms;
                                       });
    const double flops = 2.0 * static_cast<double>(product.output.rows) *
                         static_cast<double>(product.output.columns) *
                         static_cast<double>(product.left.columns);
    line["first_ms"] = ms_of(first);
    line["chosen_ms"] = ms_of(chosen);
    line["best_ms"] = best->ms;
    line["chosen_of_best"] = best->ms / ms_of(chosen);
    line["best_tflop_per_s"] = flops / best->ms * 1e-9;
    line["rested"] = {{"first_ms", rested_ms[0]}, {"chosen_ms", rested_ms[1]}};
    if (has_mm) {
      line["aten_ms"] = all_ms.back();
      line["rested"]["aten_ms"] = rested_ms.back();
    }
    std::fprintf(stderr, "%s\n", tandem::bench::ResultLine(line, gpu_).c_str());
    if (best->ms < kWorthIt * ms_of(first)) {
      std::printf("%s\n", ProductTable::Line(ProductMachine(), product.text(), best->algorithm).c_str());
      std::fflush(stdout);
    }
  }

  // Whether it gives the same bits three times, and but for rounding `expected`: as a whole, and in each
  // element, where less than a tile may have been left out. output: where it writes.
  bool IsSound(const Candidate& candidate, const ProductOperands& product, const at::Tensor& expected,
               at::Tensor& output) {
    const ProductPlan plan(handle_, product, &candidate.algorithm);
    RunAnew(plan, product, output);
    const at::Tensor result = output.clone();
    const char* fault = nullptr;
    for (int repeat = 0; repeat < 2; ++repeat) {
      RunAnew(plan, product, output);
      if (!at::equal(result, output)) {
        fault = "does not repeat its bits";
      }
    }
    const at::Tensor difference = result.sub(expected);
    const double norm = expected.norm(2, at::kDouble).item<double>();
    const double mean = norm / std::sqrt(static_cast<double>(expected.numel()));
    const bool near = difference.norm(2, at::kDouble).item<double>() <= kRounding * norm &&
                      difference.abs().max().item<double>() <= kOfElement * mean;  // not where NaN
    if (!near) {
      fault = "computes something else";
    }
    if (fault == nullptr) {
      return true;
    }
    std::fprintf(stderr, "%s: not for a table, as it %s\n",
                 ProductTable::Line(ProductMachine(), product.text(), candidate.algorithm).c_str(), fault);
    return false;
  }

  // Runs it on NaN, so that what it leaves out shows.
  void RunAnew(const ProductPlan& plan, const ProductOperands& product, at::Tensor& output) {
    output.fill_(std::numeric_limits<double>::quiet_NaN());
    RunPlan(plan, product);
  }

  void RunPlan(const ProductPlan& plan, const ProductOperands& product) {
    plan.Run(handle_, product, Work(), c10::cuda::getCurrentCUDAStream().stream());
  }

  // The medians of several turns of each, in ms, with so long a rest before each.
  std::vector<double> InTurns(const std::vector<std::function<void()>>& products,
                              std::chrono::milliseconds rest) {
    std::vector<std::vector<double>> times(products.size());
    for (int turn = 0; turn < kTurns; ++turn) {
      for (size_t i = 0; i < products.size(); ++i) {
        std::this_thread::sleep_for(rest);
        times[i].push_back(Time(products[i], /*runs=*/2));
      }
    }
    std::vector<double> medians;
    for (const std::vector<double>& of_one : times) {
      medians.push_back(Median(of_one));
    }
    return medians;
  }

  // Milliseconds of the last of some runs; the GPU then has nothing to do.
  double Time(const std::function<void()>& run, int runs) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    for (int i = 1; i < runs; ++i) {
      run();
    }
    CheckCuda(cudaEventRecord(events_[0], stream), "event");
    run();
    CheckCuda(cudaEventRecord(events_[1], stream), "event");
    CheckCuda(cudaEventSynchronize(events_[1]), "a product");
    float ms = 0;
    CheckCuda(cudaEventElapsedTime(&ms, events_[0], events_[1]), "time");
    return ms;
  }

  const std::string gpu_ = tandem::device::MakeCudaDevice(0)->name();
  cublasLtHandle_t handle_ = nullptr;
  int multiprocessors_ = 0;
  at::Tensor memory_;
  std::array<cudaEvent_t, 2> events_{};
  std::map<int64_t, std::vector<Algorithm>> all_;  // by the output's type
  // What cuBLASLt took of all of them, by the output's type, the factors' transpositions, and with an addend.
  std::map<std::tuple<int64_t, bool, bool, bool>, std::vector<Algorithm>> taken_;
};

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kForm =
      "TOKENS,OUTPUTS,INPUTS,SECONDS[,residual], then perhaps products: y, grad_x, grad_weight, "
      "grad_weight_in_float";
  if (argc < 2) {
    std::fprintf(stderr, "usage: tandem-tune-products ARGUMENT ...; an argument is %s\n", kForm);
    return 2;
  }
  std::vector<ProductTask> tasks;
  for (int i = 1; i < argc; ++i) {
    const std::optional<ProductTask> task = ReadProductTask(argv[i]);
    if (!task) {
      std::fprintf(stderr, "%s: allowed: %s\n", argv[i], kForm);
      return 2;
    }
    tasks.push_back(*task);
  }
  const c10::InferenceMode inference;
  Tuner tuner;
  for (const ProductTask& task : tasks) {
    tuner.Tune(task);
  }
  return 0;
}
