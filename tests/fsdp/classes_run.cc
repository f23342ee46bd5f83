// SPDX-License-Identifier: Apache-2.0
#include "tests/fsdp/classes_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>
#include <utility>

#include "fsdp/buffer_bytes.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/run_inputs.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/device/tensors.h"
#include "tests/fsdp/test_unit.h"

namespace tandem::fsdp::test {
namespace {

constexpr int kRunSteps = 3;
constexpr int kMicrobatches = 2;

std::vector<UnitClass> Classes() {
  const ClassTypes bf16{ElementKind::kFloat, ElementKind::kBf16, ElementKind::kBf16};
  const ClassTypes fp32{ElementKind::kFloat, ElementKind::kFloat, ElementKind::kFloat};
  const ClassTypes wide{ElementKind::kFloat, ElementKind::kBf16, ElementKind::kFloat};
  return {{MixedLayout(bf16), bf16},
          {MakeLayout({}, 2), bf16},
          {MakeLayout({{.name = "D", .shape = {5}, .decays = false}}, 2), fp32},
          {MakeLayout({{.name = "A_log", .shape = {3, 50}}, {.name = "dt_bias", .shape = {1}}}, 2), wide}};
}

// This rank's contributions of one class, [PaddedElements], in its transport type.
std::string ContributionOf(size_t of_class, const ClassShard& shard, int rank, int step, int microbatch) {
  std::mt19937_64 engine(1000 * of_class + 100 * rank + 10 * step + microbatch);
  std::normal_distribution<float> normal;
  const int64_t bytes = shard.bytes().contribution;
  const ElementKind type = shard.types().transport;
  at::Tensor values = at::empty({bytes / device::BytesOf(type)}, at::kFloat);
  std::generate_n(values.mutable_data_ptr<float>(), values.numel(), [&] { return normal(engine); });
  values = values.to(device::ScalarTypeOf(type));
  return {static_cast<const char*>(values.const_data_ptr()), static_cast<size_t>(bytes)};
}

// The parameters in `bytes`, which hold `range` of their buffer: gaps hold anything.
std::string ParametersIn(const ClassShard& shard, Range range, const std::string& bytes) {
  const int64_t element = std::ssize(bytes) / range.size();
  std::string parameters;
  for (const Piece& piece : PiecesOf(shard.layout(), range)) {
    parameters += bytes.substr(static_cast<size_t>((piece.range.begin - range.begin) * element),
                               static_cast<size_t>(piece.range.size() * element));
  }
  return parameters;
}

void Append(double value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Sums as the numbers that they are, which several pairs of doubles may be.
std::string NumbersOf(const UnitNormTerms& terms) {
  std::string numbers;
  Append(terms.squares.value(), numbers);
  Append(terms.nonfinite, numbers);
  return numbers;
}
std::string NumbersOf(const ParameterNorms& norms) {
  std::string numbers;
  for (const Magnitude& magnitude : {norms.weight, norms.gradient, norms.update}) {
    Append(magnitude.squares.value(), numbers);
    Append(magnitude.max_abs, numbers);
  }
  return numbers;
}

struct Groups {
  comm::Communicator* inner = nullptr;
  comm::Communicator* outer = nullptr;
};

// first: the number of the unit's first class.
void Train(const UnitShard& unit, size_t first, const UnitMesh& mesh, bool accumulates, const Groups& groups,
           device::Device& device, int rank, Bytes& result) {
  const auto sum = [&](int64_t ClassBytes::*role) {
    int64_t bytes = 0;
    for (const ClassShard& each : unit.classes()) {
      bytes += each.bytes().*role;
    }
    return bytes;
  };
  RankMemory memory(device, 1 << 20);
  const auto next = [&](int64_t ClassBytes::*role) { return memory.Next(sum(role)); };
  const StateMemory state{.weights = next(&ClassBytes::weights),
                          .exp_avg = next(&ClassBytes::moment),
                          .exp_avg_sq = next(&ClassBytes::moment),
                          .published = next(&ClassBytes::published)};
  const device::Memory contribution = next(&ClassBytes::contribution);
  const device::Memory full = next(&ClassBytes::full_gradient);
  const device::Memory staging = next(accumulates ? &ClassBytes::full_gradient : &ClassBytes::contribution);
  const device::Memory outer_staging = next(&ClassBytes::accumulator);
  const device::Memory gradients = next(&ClassBytes::accumulator);
  const device::Memory norm_terms = next(&ClassBytes::norm_terms);
  const device::Memory shard = next(&ClassBytes::shard);
  const device::Memory gathered = next(&ClassBytes::gathered);
  const OptimizerMemory optimizer{.gradients = gradients,
                                  .outcome = memory.Next(OutcomeBytes(1)),
                                  .inputs = memory.Next(InputsBytes()),
                                  .state = state,
                                  .update_norms = next(&ClassBytes::update_norms),
                                  .scratch = next(&ClassBytes::optimizer_scratch)};
  std::vector<ParameterInit> inits;
  for (const ClassShard& each : unit.classes()) {
    for (const ParameterInit& init : Inits(each.layout(), 0.3)) {
      inits.push_back(init);
    }
  }
  unit.Initialize(/*seed=*/5, inits, state);
  unit.Publish(state);
  const BoundCall update = unit.BindOptimizerStep(optimizer, kAdamW);
  for (int step = 1; step <= kRunSteps; ++step) {
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      std::string bytes;
      for (size_t c = 0; c < unit.classes().size(); ++c) {
        bytes += ContributionOf(first + c, unit.classes()[c], rank, step, microbatch);
      }
      memory.Write(contribution, bytes.data(), std::ssize(bytes));
      const bool last = microbatch + 1 == kMicrobatches;
      if (accumulates) {
        unit.BindAccumulate(contribution, full, /*add=*/microbatch > 0)();
      }
      if (!accumulates || last) {
        unit.BindReduceGradients(
            groups.inner,
            {.contribution = accumulates ? full : contribution,
             .accumulated = accumulates,
             .staging = staging,
             .gradients = gradients,
             .norm_terms = last && groups.outer == nullptr ? norm_terms : device::Memory{}},
            /*add=*/!accumulates && microbatch > 0)();
      }
    }
    if (groups.outer != nullptr) {
      unit.BindReduceOuter(*groups.outer,
                           {.gradients = gradients, .staging = outer_staging, .norm_terms = norm_terms})();
    }
    const NormOutcome outcome{.norm = 2, .clip = 0.75, .divisor = 6, .applied = step != 2};
    const RunInputs inputs{.update = step,
                           .learning_rate = 1e-2,
                           .correction1 = BiasCorrection(kAdamW.beta1, step),
                           .correction2 = BiasCorrection(kAdamW.beta2, step)};
    memory.Write(optimizer.outcome, &outcome, sizeof(outcome));
    memory.Write(optimizer.inputs, &inputs, sizeof(inputs));
    update();
  }
  device::Memory from = state.published.begin != nullptr ? state.published : state.weights;
  if (groups.outer != nullptr && mesh.outer_shards_optimizer) {
    unit.BindUnshardOuter(*groups.outer, from, shard)();
    from = shard;
  }
  if (groups.inner != nullptr && mesh.inner_shards_optimizer) {
    unit.BindUnshard(*groups.inner, from, gathered)();
    from = gathered;
  }
  device.Synchronize();
  const std::vector<StateMemory> states = unit.ByClass(state);
  const std::vector<device::Memory> terms = unit.NormTermsByClass(norm_terms);
  std::string nodes_read = memory.Read(from);
  std::string reduced = memory.Read(gradients);
  size_t norm = 0;
  const auto cut = [](std::string& all, int64_t bytes) {
    const std::string front = all.substr(0, static_cast<size_t>(bytes));
    all.erase(0, static_cast<size_t>(bytes));
    return front;
  };
  for (size_t c = 0; c < unit.classes().size(); ++c) {
    const ClassShard& each = unit.classes()[c];
    const ClassBytes size = each.bytes();
    const Layout& layout = each.layout();
    result["weights"].push_back(ParametersIn(each, each.held(), memory.Read(states[c].weights)));
    result["exp_avg"].push_back(ParametersIn(each, each.held(), memory.Read(states[c].exp_avg)));
    result["exp_avg_sq"].push_back(ParametersIn(each, each.held(), memory.Read(states[c].exp_avg_sq)));
    result["gradients"].push_back(
        ParametersIn(each, AccumulatorRange(layout, mesh), cut(reduced, size.accumulator)));
    const auto [range, bytes] =
        from.begin == gathered.begin ? std::pair(Range{0, PaddedElements(layout, mesh)}, size.gathered)
        : from.begin == shard.begin
            ? std::pair(ShardRange(layout, mesh), size.shard)
            : std::pair(each.held(), size.published > 0 ? size.published : size.weights);
    result["what nodes read"].push_back(ParametersIn(each, range, cut(nodes_read, bytes)));
    result["norm terms"].push_back(NumbersOf(memory.ReadAs<UnitNormTerms>(terms[c])));
    std::string& numbers = result["update norms"].emplace_back();
    for (size_t i = 0; i < layout.parameters.size(); ++i) {
      numbers += NumbersOf(memory.ReadAs<ParameterNorms>(optimizer.update_norms, norm++));
    }
  }
}

}  // namespace

std::vector<Placed> Placements() {
  std::vector<Placed> all = {{"one rank", {}}};
  for (const int inner : {2, 3}) {
    all.push_back({"zero3", {.inner = inner}});
    all.push_back({"zero1", {.inner = inner}, /*accumulates=*/true});
    all.push_back({"replicate", {.inner = inner, .inner_shards_optimizer = false}, /*accumulates=*/true});
  }
  for (const int inner : {1, 2}) {
    for (const int outer : {2, 3}) {
      all.push_back({"hsdp", {.inner = inner, .outer = outer}});
      all.push_back({"hfsdp", {.inner = inner, .outer = outer, .outer_shards_optimizer = true}});
    }
  }
  return all;
}

std::vector<Bytes> TrainClasses(const Placed& placed, const Machine& machine, bool together) {
  std::vector<Bytes> results(static_cast<size_t>(placed.ranks()));
  comm::RunThreadRanks(placed.ranks(), [&](int rank) {
    const std::unique_ptr<device::Device> device = machine.device(rank);
    UnitMesh mesh = placed.mesh;
    mesh.inner_rank = rank % mesh.inner;
    mesh.outer_rank = rank / mesh.inner;
    std::unique_ptr<comm::Communicator> inner;
    std::unique_ptr<comm::Communicator> outer;
    if (mesh.inner > 1) {
      inner =
          machine.communicator("inner " + std::to_string(mesh.outer_rank), mesh.inner_rank, mesh.inner, rank);
    }
    if (mesh.outer > 1) {
      outer =
          machine.communicator("outer " + std::to_string(mesh.inner_rank), mesh.outer_rank, mesh.outer, rank);
    }
    const Groups groups{inner.get(), outer.get()};
    Bytes& result = results[static_cast<size_t>(rank)];
    if (together) {
      Train({"unit", Classes(), mesh, *device, machine.kernels}, 0, mesh, placed.accumulates, groups, *device,
            rank, result);
      return;
    }
    size_t first = 0;
    for (const UnitClass& each : Classes()) {
      if (each.layout.elements > 0) {
        Train({"unit", {each}, mesh, *device, machine.kernels}, first++, mesh, placed.accumulates, groups,
              *device, rank, result);
      }
    }
  });
  return results;
}

}  // namespace tandem::fsdp::test
