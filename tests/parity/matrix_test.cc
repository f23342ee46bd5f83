// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/pairs.h"
#include "tests/parity/run.h"
#include "tests/platform/seeded_random.h"

namespace tandem::parity {
namespace {

// The master test: whatever the placement of a job, its numbers are those of one rank with the same
// microbatches: the same bits where it adds in the same order, otherwise within expect_close.h's tolerances.

// In bfloat16 no tier covers another order of addition. There, a run is as close to one rank's as runs of the
// same job are to each other whose microbatches are added in permuted orders: their largest distance of a
// kind times this, but at least what fp32 is allowed (the sums are in fp32; what differs is where they are
// rounded). Where a weight lies between two bfloat16 numbers, one order in five rounds it the other way, and
// some steps later that is all the distance there is: a run that is farther than a few orders are is held to
// many.
constexpr double kSpreads = 2;
constexpr int kFewOrders = 5;
constexpr int kManyOrders = 40;
constexpr uint64_t kSeed = 20;

constexpr int64_t kSteps = 3;
constexpr int64_t kSavedStep = 2;  // of jobs that are resumed

constexpr double kNoClip = 1e6;
constexpr double kActiveClip = -1;  // to be chosen from the norms that are measured without one

struct Value {
  std::string name;
  std::function<void(JobOptions&)> set;
};

// A dimension of the matrix.
struct Lane {
  // The run on one rank that a case is compared with makes the same choice; otherwise it makes the first.
  bool of_one_rank = true;
  std::vector<Value> values;
};

Value Placed(const std::string& strategy, int ranks, int replicas = 1) {
  const std::string copies = replicas == 1 ? "" : absl::StrCat(" in ", replicas, " replicas");
  return {absl::StrCat(strategy, " on ", ranks, copies), [=](JobOptions& options) {
            options.strategy = strategy;
            options.ranks = ranks;
            options.replicas = replicas;
          }};
}

// The first is one rank's.
std::vector<Value> Placements() {
  std::vector<Value> all;
  for (const char* strategy : {"zero3", "zero2", "zero1", "replicate"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      all.push_back(Placed(strategy, ranks));
    }
  }
  all.push_back(Placed("hsdp", 4, 2));
  all.push_back(Placed("hfsdp", 4, 2));
  all.push_back(Placed("hsdp", 3, 3));  // each rank a replica of its own
  all.push_back(Placed("hfsdp", 2, 2));
  return all;
}

// A dense layer and one of experts.
void Sparse(JobOptions& options) {
  options.model_type = "qwen3_moe";
  options.num_experts = 4;
  options.expert_inner = 12;
  options.sparse_step = 2;
}

// The same with shared experts, groups, biases and latent attention.
void Deepseek(JobOptions& options) {
  options.model_type = "deepseek_v3";
  options.num_experts = 8;
  options.experts_per_token = 4;
  options.expert_inner = 12;
  options.bias_update_rate = 1e-3;
}

// Bytes. Of 16 tokens, chunks have 6 in bf16 (the last 4), 3 in fp32 (the last 1) and 1 in fp64.
constexpr int64_t kFewLogits = 3600;

constexpr size_t kPrecisionLane = 2;
constexpr size_t kModelLane = 4;

// Where the placement, which is chosen before, gives them up.
void KeepGathered(JobOptions& options) {
  if (options.strategy == "zero3" || options.replicas > 1) {
    options.keep_gathered = "all";
  }
}

// To add a lane is to add a row at the end; the last one holds what changes no bit of a placement.
const std::vector<Lane>& Lanes() {
  static const auto* const lanes = new std::vector<Lane>{
      {false, Placements()},
      {false,
       {{"accumulation 1", [](JobOptions& o) { o.microbatches_per_rank = 1; }},
        {"accumulation 3", [](JobOptions& o) { o.microbatches_per_rank = 3; }}}},
      {true,
       {{"fp64", [](JobOptions& o) { o.fp64 = true; }},
        {"fp32", [](JobOptions&) {}},
        {"bf16", [](JobOptions& o) { o.precision = "compute: COMPUTE_TYPE_BF16"; }},
        {"bf16, fp32 between ranks",
         [](JobOptions& o) { o.precision = "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_FP32"; }},
        {"bf16, embedding and head fp32",
         [](JobOptions& o) {
           o.precision =
               "compute: COMPUTE_TYPE_BF16 embedding { compute: COMPUTE_TYPE_FP32 } head { compute: "
               "COMPUTE_TYPE_FP32 }";
         }},
        {"fp32, embedding and head bf16",
         [](JobOptions& o) {
           o.precision =
               "compute: COMPUTE_TYPE_FP32 embedding { compute: COMPUTE_TYPE_BF16 } head { compute: "
               "COMPUTE_TYPE_BF16 }";
         }}}},
      {true,
       {{"no clipping", [](JobOptions& o) { o.clip = kNoClip; }},
        {"clipping", [](JobOptions& o) { o.clip = kActiveClip; }}}},
      {true,
       {{"plain", [](JobOptions&) {}},
        {"tied", [](JobOptions& o) { o.tied = true; }},
        {"frozen", [](JobOptions& o) { o.frozen = "embedding,layers.1"; }},
        {"tied and frozen",
         [](JobOptions& o) {
           o.tied = true;
           o.frozen = "embedding";
         }},
        {"unused", [](JobOptions& o) { o.unused_unit = true; }},
        {"logits in chunks", [](JobOptions& o) { o.most_logit_bytes = kFewLogits; }},
        {"tied, logits in chunks",
         [](JobOptions& o) {
           o.tied = true;
           o.most_logit_bytes = kFewLogits;
         }},
        {"frozen head, logits in chunks",
         [](JobOptions& o) {
           o.frozen = "head";
           o.most_logit_bytes = kFewLogits;
         }},
        {"sparse", Sparse},
        {"deepseek_v3", Deepseek},
        {"sparse that drops tokens",
         [](JobOptions& o) {
           Sparse(o);
           o.capacity_factor = 0.9;
         }},
        {"sparse with frozen experts",
         [](JobOptions& o) {
           Sparse(o);
           o.frozen = "layers.1.experts";
         }},
        {"packed documents", [](JobOptions& o) { o.end_of_document = ' '; }},
        {"deepseek_v3 of packed documents",
         [](JobOptions& o) {
           Deepseek(o);
           o.end_of_document = ' ';
         }},
        {"biases", [](JobOptions& o) { o.model_type = "qwen2"; }},
        {"norms behind", [](JobOptions& o) { o.model_type = "olmo2"; }},
        {"frozen layer with norms behind",
         [](JobOptions& o) {
           o.model_type = "olmo2";
           o.frozen = "layers.1";
         }},
        {"frozen layer with biases",
         [](JobOptions& o) {
           o.model_type = "qwen2";
           o.frozen = "layers.0";
         }},
        {"windows within documents",
         [](JobOptions& o) {
           o.model_type = "mistral";
           o.sliding_window = 3;
           o.end_of_document = ' ';
         }}}},
      {false,
       {{"everything kept", [](JobOptions& o) { o.recompute = "off"; }},
        {"layers recomputed", [](JobOptions& o) { o.recompute = "layer"; }},
        {"nodes recomputed", [](JobOptions& o) { o.recompute = "attention,mlp"; }}}},
      {false,
       {{"prefetch 1", [](JobOptions&) {}},
        {"prefetch 0", [](JobOptions& o) { o.prefetch = 0; }},
        {"prefetch 2", [](JobOptions& o) { o.prefetch = 2; }},
        {"gathered weights kept", KeepGathered},
        {"saved and resumed", [](JobOptions& o) { o.checkpoint_every_steps = kSavedStep; }}}},
      {false, {{"no graphs", [](JobOptions&) {}}, {"graphs", [](JobOptions& o) { o.graphs = AllParts(o); }}}},
  };
  return *lanes;
}

std::vector<int> Sizes() {
  std::vector<int> sizes;
  for (const Lane& lane : Lanes()) {
    sizes.push_back(static_cast<int>(lane.values.size()));
  }
  return sizes;
}

JobOptions OptionsOf(const Choice& choice) {
  JobOptions options{.steps = kSteps,
                     .layers = 2,
                     .hidden = 16,
                     .inner = 24,
                     .heads = 2,
                     .kv_heads = 1,
                     .sequence_length = 8,
                     .validate_every_steps = 2,
                     .validation_batches = 5};
  for (size_t lane = 0; lane < choice.size(); ++lane) {
    Lanes()[lane].values[choice[lane]].set(options);
  }
  return options;
}

std::string NameOf(const Choice& choice) {
  std::string name;
  for (size_t lane = 0; lane < choice.size(); ++lane) {
    absl::StrAppend(&name, lane == 0 ? "" : ", ", Lanes()[lane].values[choice[lane]].name);
  }
  return name;
}

Choice OfOneRank(Choice choice) {
  for (size_t lane = 0; lane < choice.size(); ++lane) {
    choice[lane] = Lanes()[lane].of_one_rank ? choice[lane] : 0;
  }
  return choice;
}

// Whether the order of addition is that of one rank (T1), so that losses and weights are the same bits.
bool HasBitsOfOneRank(const JobOptions& of) {
  const bool inner_alone = of.replicas == 1;
  const bool outer_alone = of.replicas == of.ranks;
  const bool folds_microbatches = of.strategy == "zero2" || of.strategy == "zero3";
  return (inner_alone && folds_microbatches) ||
         ((inner_alone || outer_alone) && of.microbatches_per_rank == 1) || of.ranks == 1;
}

// The same microbatches, added in the order of `permutation`: on a rank each, every rank at another place of
// its groups.
JobRun RunPermuted(JobOptions options, int microbatches, const std::vector<int>& permutation) {
  options.strategy = "zero3";
  options.ranks = microbatches;
  options.replicas = 1;
  options.microbatches_per_rank = 1;
  plan::JobPlan plan = MakeJob(options);
  for (parallel::Group& group : plan.groups) {
    for (int& rank : group.ranks) {
      rank = permutation[rank];
    }
  }
  return RunJob(plan);
}

Tolerance LargerOf(const Tolerance& a, const Tolerance& b) {
  return {.loss = std::max(a.loss, b.loss),
          .state = std::max(a.state, b.state),
          .first_norm = std::max(a.first_norm, b.first_norm),
          .later_norm = std::max(a.later_norm, b.later_norm)};
}

bool IsWithin(const Tolerance& distance, const Tolerance& allowed) {
  return distance.loss <= allowed.loss && distance.state <= allowed.state &&
         distance.first_norm <= allowed.first_norm && distance.later_norm <= allowed.later_norm;
}

class Matrix {
 public:
  void Expect(const Choice& choice) {
    SCOPED_TRACE(NameOf(choice));
    JobOptions options = OptionsOf(choice);
    const int microbatches = options.ranks * options.microbatches_per_rank;
    const bool clips = options.clip == kActiveClip;
    const JobRun& one = OneRank(OfOneRank(choice), microbatches);
    options.clip = clips ? ClipOf(OfOneRank(choice), microbatches) : options.clip;
    for (const v1::StepReport& step : one.steps) {
      EXPECT_EQ(step.nonfinite(), 0);
      EXPECT_EQ(step.grad_norm() > options.clip, clips)
          << "clipping is to be " << (clips ? "" : "in") << "active";
    }
    const TemporaryFolder folder;
    JobOptions saved = options;
    saved.checkpoint_directory = options.checkpoint_every_steps > 0 ? folder.path() : "";
    const plan::JobPlan plan = MakeJob(saved);
    const JobRun run = RunJob(plan, {.fill_with_nan = true});
    EXPECT_EQ(run.arena_bytes, std::vector<int64_t>(options.ranks, plan.stage.arena_bytes));
    if (HasBitsOfOneRank(options)) {
      ExpectSameBits(one, run);
    } else if (options.precision.empty()) {
      ExpectClose(plan, one, run, options.fp64 ? kFp64 : kFp32);
    } else {
      const Tolerance distance = DistanceBetween(plan, one, run);
      const bool near = IsWithin(distance, AllowedInBf16(choice, microbatches, options, kFewOrders));
      ExpectClose(plan, one, run,
                  AllowedInBf16(choice, microbatches, options, near ? kFewOrders : kManyOrders));
    }
    if (options.checkpoint_every_steps > 0) {
      saved.resume = absl::StrCat(folder.path(), "/step-", kSavedStep);
      ExpectSameBits(Tail(run, kSavedStep + 1), RunJob(MakeJob(saved), {.fill_with_nan = true}));
    }
  }

 private:
  // Half of the least norm of the run that does not clip.
  double ClipOf(Choice choice, int microbatches) {
    for (size_t lane = 0; lane < choice.size(); ++lane) {
      JobOptions options;
      Lanes()[lane].values[choice[lane]].set(options);
      choice[lane] = options.clip == kActiveClip ? 0 : choice[lane];
    }
    double least = kNoClip;
    for (const v1::StepReport& step : OneRank(choice, microbatches).steps) {
      least = std::min(least, step.grad_norm());
    }
    return least / 2;
  }

  const JobRun& OneRank(const Choice& choice, int microbatches) {
    const auto found = one_rank_.find({choice, microbatches});
    if (found != one_rank_.end()) {
      return found->second;
    }
    JobOptions options = OptionsOf(choice);
    options.microbatches_per_rank = microbatches;
    if (options.clip == kActiveClip) {
      options.clip = ClipOf(choice, microbatches);
    }
    return one_rank_[{choice, microbatches}] = RunJob(MakeJob(options));
  }

  Tolerance AllowedInBf16(const Choice& choice, int microbatches, const JobOptions& options, int orders) {
    const Tolerance& spread = SpreadOf(OfOneRank(choice), microbatches, options, orders);
    return LargerOf({.loss = kSpreads * spread.loss,
                     .state = kSpreads * spread.state,
                     .first_norm = kSpreads * spread.first_norm,
                     .later_norm = kSpreads * spread.later_norm},
                    kFp32);
  }

  // The largest distances between any two of so many of the job's orders of addition, and one rank's.
  const Tolerance& SpreadOf(const Choice& choice, int microbatches, const JobOptions& options, int orders) {
    const auto [found, is_new] = spreads_.try_emplace({choice, microbatches, orders});
    if (!is_new) {
      return found->second;
    }
    const plan::JobPlan plan = MakeJob(options);
    std::vector<JobRun> runs = {OneRank(choice, microbatches)};
    std::vector<int> order(microbatches);
    std::iota(order.begin(), order.end(), 0);
    platform::SeededRandom random(kSeed);
    for (int i = 0; i < orders; ++i) {
      for (int last = microbatches - 1; last > 0; --last) {
        std::swap(order[last], order[random.Next64() % static_cast<uint64_t>(last + 1)]);
      }
      runs.push_back(RunPermuted(options, microbatches, order));
      for (size_t j = 0; j + 1 < runs.size(); ++j) {
        found->second = LargerOf(found->second, DistanceBetween(plan, runs[j], runs.back()));
      }
    }
    return found->second;
  }

  std::map<std::pair<Choice, int>, JobRun> one_rank_;
  std::map<std::tuple<Choice, int, int>, Tolerance> spreads_;
};

void ExpectAll(const std::vector<Choice>& choices) {
  Matrix matrix;
  for (const Choice& choice : choices) {
    matrix.Expect(choice);
  }
}

TEST(ParityMatrixTest, SampledPairsHaveTheNumbersOfOneRank) {
  const std::vector<Choice> choices = ChoicesThatCoverAllPairs(Sizes(), kSeed);
  std::printf("seed %d, %zu cases\n", static_cast<int>(kSeed), choices.size());
  ExpectAll(choices);
}

// scripts/test.sh --full. In parts of one precision and model each, whose cases are compared with the same
// few runs on one rank.
class ParityMatrixPartTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(ParityMatrixPartTest, DISABLED_EveryCaseHasTheNumbersOfOneRank) {
  // Every value of the last lane in turn.
  std::vector<int> sizes = Sizes();
  const int last = sizes.back();
  sizes.pop_back();
  std::vector<Choice> choices = AllChoices(sizes);
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i].push_back(static_cast<int>(i % last));
  }
  std::erase_if(choices, [](const Choice& choice) {
    return std::tuple(choice[kPrecisionLane], choice[kModelLane]) != GetParam();
  });
  std::printf("seed %d, %zu cases\n", static_cast<int>(kSeed), choices.size());
  ExpectAll(choices);
}

INSTANTIATE_TEST_SUITE_P(Parts, ParityMatrixPartTest,
                         testing::Combine(testing::Range(0, Sizes()[kPrecisionLane]),
                                          testing::Range(0, Sizes()[kModelLane])));

}  // namespace
}  // namespace tandem::parity
