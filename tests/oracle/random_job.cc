// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/random_job.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "model/decoder_outline.h"
#include "schedules/build/program_builder.h"
#include "schedules/passes/passes.h"
#include "schedules/program/sharding_strategy.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::oracle {

using schedules::BuildOptions;
using schedules::NodePass;
using schedules::Opcode;
using schedules::Outline;
using schedules::PassList;
using schedules::StagePrograms;

namespace {

int Below(std::mt19937_64& random, size_t bound) { return static_cast<int>(random() % bound); }

// Whether no other pass writes the gradients that the node's weight half writes: their sum is in an order.
bool WritesAlone(const Outline& outline, int node) {
  std::map<std::pair<int, int>, int> writers;
  for (const schedules::Node& other : outline.nodes) {
    for (const schedules::Access* access : {&other.forward, &other.backward_input, &other.backward_weight}) {
      for (const schedules::UnitPart& part : access->parameter_gradients) {
        ++writers[{part.unit, part.part}];
      }
    }
  }
  const std::vector<schedules::UnitPart>& parts = outline.nodes[node].backward_weight.parameter_gradients;
  return std::all_of(parts.begin(), parts.end(), [&](const schedules::UnitPart& part) {
    return writers[{part.unit, part.part}] == 1;
  });
}

// The backward of one microbatch; some weight halves come later, in the order of their nodes.
PassList LateWeights(const Outline& outline, const PassList& backward, std::mt19937_64& random) {
  PassList passes;
  PassList late;
  for (const NodePass& pass : backward) {
    const bool waits =
        pass.opcode == Opcode::kBackwardWeight && WritesAlone(outline, pass.target) && Below(random, 3) != 0;
    (waits ? late : passes).push_back(pass);
    if (!late.empty() && Below(random, 3) == 0) {
      passes.push_back(late.front());
      late.erase(late.begin());
    }
  }
  passes.insert(passes.end(), late.begin(), late.end());
  return passes;
}

// Forwards of microbatch m + 1 anywhere among the backwards of m.
PassList Interleaved(const Outline& outline, int num_microbatches, std::mt19937_64& random) {
  const PassList sequential = schedules::Sequential(outline, 1);
  PassList forward;
  PassList backward;
  bool back = false;
  for (const NodePass& pass : sequential) {
    back |= pass.opcode == Opcode::kBackwardInput || pass.gradient;
    (back ? backward : forward).push_back(pass);
  }
  const auto of_microbatch = [](PassList passes, int microbatch) {
    for (NodePass& pass : passes) {
      pass.microbatch = microbatch;
    }
    return passes;
  };
  PassList passes = forward;
  for (int m = 0; m < num_microbatches; ++m) {
    const PassList now = LateWeights(outline, of_microbatch(backward, m), random);
    const PassList next = m + 1 < num_microbatches ? of_microbatch(forward, m + 1) : PassList();
    size_t a = 0;
    size_t b = 0;
    while (a < now.size() || b < next.size()) {
      const bool take = b == next.size() || (a < now.size() && Below(random, 2) == 0);
      passes.push_back(take ? now[a++] : next[b++]);
    }
  }
  return passes;
}

// As model/ declares it.
Outline OfModel(const model::DecoderConfig& config) {
  std::vector<model::UnitLayout> layouts;
  for (const model::UnitParameters& unit : DecoderUnits(config)) {
    model::UnitLayout& layout = layouts.emplace_back();
    int64_t& end = layout.elements.emplace_back();
    for (const model::Parameter& parameter : unit.parameters) {
      const int64_t begin = (end + 31) / 32 * 32;
      end = begin + std::accumulate(parameter.shape.begin(), parameter.shape.end(), int64_t{1},
                                    std::multiplies<int64_t>());
      layout.parameters.push_back({begin, end});
    }
  }
  return DecoderOutline(config, {.sequences = 1, .sequence_length = 8}, model::ComputeType::kFp32,
                        model::DeviceKind::kCpu, layouts);
}

model::DecoderConfig SmallConfig(int layers, bool tied) {
  return {.hidden_size = 32,
          .intermediate_size = 48,
          .num_hidden_layers = layers,
          .num_attention_heads = 2,
          .num_key_value_heads = 1,
          .head_dim = 16,
          .vocab_size = 64,
          .tie_word_embeddings = tied};
}

// Two ranks share four experts.
model::DecoderConfig SparseConfig(std::mt19937_64& random) {
  model::DecoderConfig config = SmallConfig(1 + Below(random, 3), Below(random, 2) == 0);
  config.moe.router = {.experts = 4, .top_k = 2};
  config.moe.intermediate_size = 24;
  config.moe.decoder_sparse_step = config.num_hidden_layers == 1 ? 1 : 1 + Below(random, 2);
  config.moe.ranks = 2;
  config.moe.exact_chunks = Below(random, 2) == 0;
  if (Below(random, 3) == 0) {
    config.moe.balance_scope = model::BalanceScope::kGlobal;
    config.moe.data_ranks = 4;
  }
  return config;
}

std::vector<bool> RandomRecompute(const Outline& outline, std::mt19937_64& random) {
  std::vector<bool> recompute(outline.values.size(), false);
  for (const schedules::Node& node : outline.nodes) {
    for (const schedules::ValueId value : node.forward.writes) {
      const bool reported =
          std::find(outline.losses.begin(), outline.losses.end(), value) != outline.losses.end();
      recompute[value] = node.forward.parameter_gradients.empty() && node.forward.gradient_writes.empty() &&
                         node.forward.state_carries.empty() && !reported &&
                         outline.values[value].kind != schedules::ValueKind::kHost && Below(random, 3) == 0;
    }
  }
  return recompute;
}

// Precision, strategy, ranks, prefetch, what is kept. `job` has an outline and a name.
void ChooseOptions(int num_microbatches, std::mt19937_64& random, Job& job) {
  if (Below(random, 3) == 0) {
    schedules::UseBf16(job.outline);
    job.name += ", bf16";
  }
  if (Below(random, 3) == 0) {
    schedules::KeepLastPartsInMainType(job.outline);
    job.name += ", parts in the main type";
  }
  const std::vector<schedules::Strategy>& strategies = schedules::Strategies();
  const schedules::Strategy& strategy = strategies[Below(random, strategies.size())];
  const int ranks = strategy.outer.gradients == schedules::Placement::kPartial ? 4 : 1 + Below(random, 2);
  job.options = schedules::OptionsFor(job.outline, strategy.name, num_microbatches, ranks);
  job.options.prefetch = Below(random, 3);
  job.options.parameter_norms = Below(random, 4) != 0;
  job.options.num_validation_microbatches = Below(random, 3);
  job.name += ", " + strategy.name + ", ranks " + std::to_string(ranks) + ", microbatches " +
              std::to_string(num_microbatches) + ", prefetch " + std::to_string(job.options.prefetch);
  job.options.saves = Below(random, 2) == 0;
  job.name += job.options.saves ? ", saves" : "";
  if (Below(random, 3) == 0) {
    job.options.recompute = RandomRecompute(job.outline, random);
    job.name += ", recompute";
  }
  if (Below(random, 4) == 0) {
    for (size_t unit = 0; unit < job.outline.units.size(); ++unit) {
      job.options.keep_gathered.push_back(Below(random, 2) == 0);
    }
    job.name += ", keeps gathered";
  }
  if (Below(random, 3) == 0) {
    const bool all = Below(random, 2) == 0;
    for (size_t node = 0; node < job.outline.nodes.size(); ++node) {
      job.options.replayed.push_back(all || Below(random, 2) == 0);
    }
    job.name += all ? ", all replayed" : ", some replayed";
  }
}

// At the default budget or the least.
void BuildPrograms(const PassList& train, std::mt19937_64& random, Job& job) {
  const PassList validate = schedules::ForwardOnly(job.outline, job.options.num_validation_microbatches);
  job.stage = schedules::BuildStage(job.outline, job.options, train, validate).value();
  if (Below(random, 2) == 0) {
    for (const schedules::Program* program : job.stage.All()) {
      job.options.budget_bytes = std::max(job.options.budget_bytes, schedules::BudgetsOf(*program).least);
    }
    job.stage = schedules::BuildStage(job.outline, job.options, train, validate).value();
    job.name += ", least memory";
  }
}

}  // namespace

Job RandomJob(std::mt19937_64& random) {
  Job job;
  switch (Below(random, 7)) {
    case 0:
      job.outline = schedules::SmallDecoder(1);
      job.name = "small";
      break;
    case 1:
      job.outline = schedules::SmallDecoder(2, /*tied=*/true);
      job.name = "tied";
      break;
    case 2:
      job.outline = schedules::UnusualDecoder();
      job.name = "unusual";
      break;
    case 3:
      job.outline = schedules::MoeDecoder(1);
      job.name = "moe";
      break;
    case 4:
      job.outline = OfModel(SmallConfig(1 + Below(random, 2), Below(random, 2) == 0));
      job.name = "model " + std::to_string(job.outline.units.size());
      break;
    default: {
      const uint64_t seed = random() % 1000;
      job.outline = schedules::RandomOutline(seed);
      job.name = "random " + std::to_string(seed);
    }
  }
  const int num_microbatches = 1 + Below(random, 3);
  ChooseOptions(num_microbatches, random, job);
  PassList train = schedules::Sequential(job.outline, num_microbatches);
  if (Below(random, 2) == 0) {
    const bool any = Below(random, 2) == 0;
    train = any ? Interleaved(job.outline, num_microbatches, random)
                : schedules::Overlapped(job.outline, num_microbatches);
    job.options.hold = 1;
    job.name += any ? ", interleaved" : ", overlapped";
  } else if (Below(random, 3) == 0) {
    job.options.separate_weights = true;
    job.name += ", separate weights";
  }
  BuildPrograms(train, random, job);
  return job;
}

Job OverlapJob(std::mt19937_64& random) {
  Job job;
  if (Below(random, 2) == 0) {
    const int layers = 1 + Below(random, 3);
    job.outline = schedules::MoeDecoder(layers);
    job.name = "moe " + std::to_string(layers);
  } else {
    const model::DecoderConfig config = SparseConfig(random);
    job.outline = OfModel(config);
    job.name = "sparse model of " + std::to_string(config.num_hidden_layers) + " layers, every " +
               std::to_string(config.moe.decoder_sparse_step) + ". sparse" +
               (config.moe.exact_chunks ? ", exact chunks" : "") +
               (config.moe.balance_scope == model::BalanceScope::kGlobal ? ", global balance" : "");
  }
  ChooseOptions(2 + Below(random, 3), random, job);
  const bool delays = Below(random, 2) == 0;
  job.options.hold = 1;
  job.name += delays ? ", late weight halves" : ", weight halves at once";
  BuildPrograms(schedules::Overlapped(job.outline, job.options.num_microbatches, delays), random, job);
  return job;
}

}  // namespace tandem::oracle
