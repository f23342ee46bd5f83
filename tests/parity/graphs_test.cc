// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/passes/segments.h"
#include "tests/device/forwarding_device.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Graphs change no bit: what is replayed, for 20 steps and with anything between them. On the CPU a graph is
// the list of calls that it was captured with; tests/cuda has the same for GPUs.

constexpr int64_t kStepsWithGraphs = 20;

struct Counts {
  std::atomic<int64_t> captures = 0;
  std::atomic<int64_t> launches = 0;
};

class CountingDevice final : public device::ForwardingDevice {
 public:
  CountingDevice(device::Device& inner, Counts& counts) : ForwardingDevice(inner), counts_(counts) {}

  std::unique_ptr<device::Graph> Capture(std::function<void()> work) override {
    ++counts_.captures;
    return ForwardingDevice::Capture([this, work = std::move(work)] {
      ++counts_.launches;
      work();
    });
  }

 private:
  Counts& counts_;
};

// Runs `options` with graphs of `parts` and expects the bits of `eager`, and that all was replayed but the
// first time of each graph.
void ExpectReplays(const JobRun& eager, JobOptions options, const std::string& parts) {
  SCOPED_TRACE(absl::StrCat(options.strategy, ", ", options.ranks, " ranks, accumulation ",
                            options.microbatches_per_rank, options.overlap ? ", overlap" : "",
                            options.delay_weight_gradients ? ", delayed" : "", ", graphs of ", parts));
  options.graphs = parts;
  const plan::JobPlan plan = MakeJob(options);
  Counts counts;
  const JobRun run = RunJob(plan, {.fill_with_nan = true, .make_backend = [&](int) {
                                     return std::make_unique<WithDevice<CountingDevice>>(counts);
                                   }});
  ExpectSameBits(eager, run);
  const int64_t graphs = CountGraphs(plan.stage.train);
  EXPECT_GT(graphs, 0);
  EXPECT_EQ(counts.captures, options.ranks * graphs);
  EXPECT_EQ(counts.launches, options.ranks * (options.steps * CountSegments(plan.stage.train) - graphs));
}

struct Arrangement {
  bool overlap = false;
  bool delay = false;
};
constexpr Arrangement kArrangements[] = {{}, {true, false}, {true, true}};

void ExpectReplaysOf(JobOptions options, const std::vector<std::string>& scopes) {
  options.steps = kStepsWithGraphs;
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    for (const int accumulation : {1, 4}) {
      options.strategy = strategy;
      options.microbatches_per_rank = accumulation;
      const JobRun eager = RunJob(MakeJob(options));
      for (const auto& [overlap, delay] : kArrangements) {
        JobOptions arranged = options;
        arranged.overlap = overlap;
        arranged.delay_weight_gradients = delay;
        for (const std::string& parts : scopes) {
          ExpectReplays(eager, arranged, parts);
        }
      }
    }
  }
}

// Small, as there are many runs.
JobOptions Small(JobOptions options) {
  options.hidden = 8;
  options.inner = 12;
  options.heads = 2;
  options.kv_heads = 1;
  options.sequence_length = 8;
  options.micro_batch_size = 1;
  return options;
}

TEST(GraphsTest, DenseLayersHaveTheBitsOfEagerOnes) {
  for (const int ranks : {1, 2}) {
    JobOptions options = Small({.layers = 3});
    options.ranks = ranks;
    ExpectReplaysOf(options, {"attention", "attention,mlp"});
  }
}

TEST(GraphsTest, ExpertParallelLayersReplayTheEagerBits) {
  JobOptions options = Small(SparseJob());
  options.expert_inner = 8;
  options.ranks = 2;
  options.expert_parallel = 2;
  for (const char* chunks : {"fixed", "exact"}) {
    options.chunks = chunks;
    ExpectReplaysOf(options, {"router", "attention,router,preprocess"});
  }
}

// Layers of mixers and of delta nets, alone and before attention and experts that two ranks share.
TEST(GraphsTest, PatternedLayersHaveTheBitsOfEagerRuns) {
  JobOptions options = Small(SparseJob());
  options.model_type = "hybrid";
  options.pattern = "[M*E]MG[G-]";
  options.num_experts = 4;
  options.expert_inner = 8;
  options.ranks = 2;
  options.expert_parallel = 2;
  ExpectReplaysOf(options, {"mamba", AllParts(options)});
  options.model_type = "qwen3_next";
  options.pattern = "[GE][*-][*E]";
  ExpectReplaysOf(options, {"attention", AllParts(options)});
}

// A checkpoint, a validation and what is replayed after them; then a job that goes on from a checkpoint of
// one with graphs, without them.
TEST(GraphsTest, CheckpointsAndValidationsComeBetweenReplays) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 9, .validate_every_steps = 2};
  const TemporaryFolder folder;
  options.checkpoint_every_steps = 3;
  options.checkpoint_directory = folder.path() + "/eager";
  const JobRun eager = RunJob(MakeJob(options));
  options.checkpoint_directory = folder.path() + "/replayed";
  options.graphs = AllParts(options);
  ExpectSameBits(eager, RunJob(MakeJob(options)));
  options.resume = options.checkpoint_directory + "/step-3";
  ExpectSameBits(Tail(eager, 4), RunJob(MakeJob(options)));
  options.graphs = "none";
  ExpectSameBits(Tail(eager, 4), RunJob(MakeJob(options)));
}

// Whatever the memory: waits for it are of segments as a whole.
TEST(GraphsTest, FrozenAndRecomputedLayersAreReplayed) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 3, .steps = 5, .layers = 3};
  options.frozen = "layers.0";
  for (const char* recompute : {"off", "layer", "attention"}) {
    options.recompute = recompute;
    options.graphs = "none";
    const JobRun eager = RunJob(MakeJob(options));
    ExpectReplays(eager, options, "attention,mlp");
  }
}

// Documents start elsewhere in each batch, and a padded step has targets that do not count.
TEST(GraphsTest, ChangingValuesAreReadFromMemory) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 6};
  options.end_of_document = ' ';
  const JobRun eager = RunJob(MakeJob(options));
  ExpectReplays(eager, options, "attention,mlp");
}

// A permutation without its router, capacities without padding, and canaries between the replays.
TEST(GraphsTest, OptionsThatOthersRefuseKeepEagerBits) {
  JobOptions options = Small(SparseJob());
  options.ranks = 2;
  options.expert_parallel = 2;
  options.microbatches_per_rank = 2;
  options.steps = 6;
  options.capacity_factor = 1;
  for (const char* chunks : {"fixed", "exact"}) {
    options.chunks = chunks;
    options.graphs = "none";
    const JobRun eager = RunJob(MakeJob(options));
    ExpectReplays(eager, options, "preprocess");
    ExpectReplays(eager, options, "attention,router,preprocess");
    options.graphs = AllParts(options);
    options.canaries = true;
    ExpectSameBits(eager, RunJob(MakeJob(options)));
    options.canaries = false;
  }
}

TEST(GraphsTest, BiasesReplayBesideDelayedWeightGradientsAndRecomputation) {
  JobOptions options = Small({.layers = 3});
  options.has_biases = true;
  options.ranks = 2;
  options.microbatches_per_rank = 3;
  options.steps = 6;
  options.recompute = "layer";
  const JobRun eager = RunJob(MakeJob(options));
  options.overlap = true;
  options.delay_weight_gradients = true;
  ExpectReplays(eager, options, "attention,mlp");
}

TEST(GraphsTest, AllowedOrdersOfSegmentsHaveTheSameBits) {
  JobOptions options = Small(SparseJob());
  options.ranks = 2;
  options.expert_parallel = 2;
  options.microbatches_per_rank = 3;
  options.steps = 3;
  options.overlap = true;
  options.delay_weight_gradients = true;
  const JobRun eager = RunJob(MakeJob(options));
  options.graphs = AllParts(options);
  ExpectSameBitsInOrders(eager, MakeJob(options), /*seeds=*/20);
}

}  // namespace
}  // namespace tandem::parity
