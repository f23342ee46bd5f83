// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/expert_row_limit.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/bound_program.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

// Ranks that share the experts of a layer, and send each other tokens: the numbers are those of ranks that
// have every expert, and every schedule has the same bits (overlap_matrix_test.cc has every layout).

JobOptions OnFourRanks() {
  return {.ranks = 4,
          .expert_parallel = 2,
          .microbatches_per_rank = 2,
          .steps = 4,
          .hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8,
          .model_type = "mixtral",
          .num_experts = 4};
}

TEST(ExpertParallelJobTest, Fp32HasTheNumbersWithoutExpertParallelism) {
  ExpectNumbersOfRanksWithEveryExpert(OnFourRanks());
}

// Whatever the chunks, what is computed is the same.
TEST(ExpertParallelJobTest, UncountedTargetsKeepNumbersWithoutExpertParallelism) {
  JobOptions options = OnFourRanks();
  options.count_first_token = false;
  options.end_of_document = ' ';
  options.router_aux_loss = 0.5;
  options.fp64 = true;
  ExpectNumbersOfRanksWithEveryExpert(options);
}

TEST(ExpertParallelJobTest, ExactChunksKeepBitsAndSendExistingRows) {
  JobOptions options = OnFourRanks();
  options.chunks = "fixed";
  const JobRun fixed = RunJob(MakeJob(options));
  options.chunks = "exact";
  const JobRun exact = RunJob(MakeJob(options), {.fill_with_nan = true});
  EXPECT_EQ(FirstDifference(fixed, exact), "");
  const auto rows = [](const JobRun& run, const char* operation) {
    int64_t bytes = 0;
    for (const Collective& collective : run.collectives.at("ep")) {
      bytes += collective.operation == operation ? collective.bytes : 0;
    }
    return bytes;
  };
  EXPECT_GT(rows(exact, "AllToAllRows"), 0);
  EXPECT_LT(rows(exact, "AllToAllRows"), rows(fixed, "AllToAll"));
  EXPECT_EQ(rows(exact, "AllToAll"), 0);
}

TEST(ExpertParallelJobTest, SufficientRoomChangesNoBitAndSavesMemory) {
  JobOptions options = OnFourRanks();
  options.expert_parallel = 4;
  options.num_experts = 16;
  options.validate_every_steps = 2;
  for (const bool pads : {false, true}) {
    SCOPED_TRACE(pads ? "padded" : "as many rows as there are");
    options.capacity_factor = pads ? 1.5 : 0;
    options.pad_to_capacity = pads;
    options.most_rows = 0;
    options.chunks = "exact";
    const plan::JobPlan whole = MakeJob(options);
    options.chunks = "";  // exact follows
    options.most_rows = 2;
    const plan::JobPlan bounded = MakeJob(options);
    EXPECT_TRUE(bounded.model.moe.exact_chunks);
    EXPECT_LT(bounded.stage.arena_bytes, whole.stage.arena_bytes);
    EXPECT_EQ(FirstDifference(RunJob(whole), RunJob(bounded, {.fill_with_nan = true})), "");
    if (!pads) {
      ExpectSameBitsOfSchedules(options);
    }
  }
}

// On a GPU the thread that issues the exchanges must know their sizes, and of those alone.
TEST(ExpertParallelJobTest, AGpusHostReadsCountsBeforeItSends) {
  JobOptions options = OnFourRanks();
  options.on_gpus = true;
  options.overlap = true;
  const auto reads_of = [&options](const char* chunks) {
    options.chunks = chunks;
    const plan::JobPlan plan = MakeJob(options);
    const trainer::BoundProgram bound(plan.stage.train, [](const schedules::Instruction&, int) {
      return std::make_shared<const trainer::Call>();
    });
    std::set<std::pair<schedules::ValueId, int>> known;  // of which microbatch
    int reads = 0;
    for (const trainer::Segment& segment : bound.segments()) {
      for (const trainer::BoundInstruction* each : segment.instructions) {
        const schedules::Instruction& instruction = *each->instruction;
        const bool waits = instruction.opcode == schedules::Opcode::kHostWait;
        EXPECT_EQ(segment.holds_issue, waits);
        if (waits) {
          EXPECT_EQ(segment.instructions.size(), 1u);
          known.insert({instruction.target, instruction.microbatch});
        }
        for (const schedules::Operand& operand : instruction.operands) {
          const schedules::Buffer& buffer = plan.stage.train.buffers[operand.buffer];
          if (buffer.kind == schedules::BufferKind::kSizes && operand.mode == schedules::Mode::kReads) {
            EXPECT_TRUE(known.contains({buffer.subject, instruction.microbatch}));
            ++reads;
          }
        }
      }
    }
    return reads;
  };
  EXPECT_EQ(reads_of("fixed"), 0);
  EXPECT_GT(reads_of("exact"), 0);
}

// A balanced router of few experts reaches most ranks with most tokens, one of many does not.
TEST(ExpertParallelJobTest, ChunksAreExactIfMostWouldStayEmpty) {
  JobOptions options = OnFourRanks();
  options.expert_parallel = 4;
  EXPECT_FALSE(MakeJob(options).model.moe.exact_chunks == MakeJob(OnFourRanks()).model.moe.exact_chunks);
  EXPECT_NEAR(ExpectedFill(MakeJob(options).model.moe), 0.5, 1e-12);
  EXPECT_NEAR(ExpectedFill(MakeJob(OnFourRanks()).model.moe), 5.0 / 6, 1e-12);
  JobOptions dealt = OnFourRanks();
  dealt.balanced_routing = true;
  EXPECT_EQ(ExpectedFill(MakeJob(dealt).model.moe), 1);
}

// Every rank makes the same exchanges: of a layer's rows, experts and probabilities, of what became of the
// rows, and of the gradients of all but the experts' numbers. A token is one row a rank, however many experts
// it has there.
TEST(ExpertParallelJobTest, ATokenTravelsOncePerRank) {
  JobOptions options = OnFourRanks();
  options.steps = 1;
  options.warmup_steps = 0;
  options.layers = 1;
  options.microbatches_per_rank = 1;
  const JobRun run = RunJob(MakeJob(options));
  const int64_t rows = options.expert_parallel * options.micro_batch_size * options.sequence_length;
  const int64_t tokens = rows * options.hidden * 4;
  const int64_t experts = rows * 2 * 8;
  const int64_t probabilities = rows * 2 * 4;
  std::vector<int64_t> bytes;
  for (const Collective& collective : run.collectives.at("ep")) {
    EXPECT_EQ(collective.operation, "AllToAll");
    bytes.push_back(collective.bytes);
  }
  EXPECT_EQ(bytes,
            (std::vector<int64_t>{tokens, experts, probabilities, tokens, tokens, probabilities, tokens}));
}

// On communicators of their own: nothing of an expert goes over a dense group, and nothing else over theirs.
TEST(ExpertParallelJobTest, ExpertsAreGatheredAndReducedInTheirGroups) {
  for (const char* strategy : {"replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    JobOptions options = OnFourRanks();
    options.strategy = strategy;
    options.replicas = ReplicasOf(strategy);
    options.ranks *= options.replicas;
    const plan::JobPlan plan = MakeJob(options);
    const schedules::MeshAxes& expert = plan.options.expert;
    const schedules::MeshAxes& dense = plan.options.dense;
    ASSERT_EQ(expert.inner * expert.outer * options.expert_parallel, dense.inner * dense.outer);
    const JobRun run = RunJob(plan);
    const auto of = [&](const std::string& group, bool all_gather) {
      const auto found = run.collectives.find(group);
      return found == run.collectives.end()
                 ? 0
                 : std::count_if(found->second.begin(), found->second.end(), [&](const Collective& made) {
                     return (made.operation == "AllGather") == all_gather;
                   });
    };
    // Two layers have a unit of experts each; embedding, head and what else is in the layers are dense.
    EXPECT_GT(of(expert.inner_group, false), 0);
    EXPECT_EQ(of(dense.inner_group, false), 2 * of(expert.inner_group, false));
    EXPECT_EQ(of(expert.outer_group, false) > 0, options.replicas > 1);
    EXPECT_EQ(of(dense.outer_group, false), 2 * of(expert.outer_group, false));
    EXPECT_EQ(of(expert.gather_group, false), 0);
    EXPECT_EQ(of(expert.gather_group, true) > 0, strategy != std::string("replicate"));
    // In a microbatch embedding and head are used once, layers twice.
    const bool gathers_per_use = plan.options.strategy.inner.parameters == schedules::Placement::kShard;
    EXPECT_EQ(of(dense.gather_group, true) * 2, (gathers_per_use ? 3 : 4) * of(expert.gather_group, true));
  }
}

// Layer 0 of microbatch 1 forward over layer 1 of microbatch 0 backward, as an executor issued it.
TEST(ExpertParallelJobTest, ALayerPairIsIssuedInTabulatedOrder) {
  JobOptions options = OnFourRanks();
  options.ranks = 2;
  options.steps = 5;
  options.overlap = true;
  options.delay_weight_gradients = true;
  const plan::JobPlan plan = MakeJob(options);
  const JobRun run = RunJob(plan, {.with_requests = [](std::vector<trainer::RequestBox>& ranks) {
                              ranks[0].AddProfile({.id = 1, .steps = 1, .serialized = true});
                            }});
  using schedules::Opcode;
  const schedules::Program& program = plan.stage.train;
  int recorded = 0;
  for (const ProfiledStep& step : run.profiled) {
    if (!step.timeline.serialized) {
      continue;
    }
    ++recorded;
    std::vector<size_t> order(program.instructions.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return step.timeline.instructions[a].start_ns < step.timeline.instructions[b].start_ns;
    });
    std::vector<std::string> issued;
    for (const size_t i : order) {
      const schedules::Instruction& instruction = program.instructions[i];
      const bool forward = instruction.opcode == Opcode::kForward && instruction.microbatch == 1;
      const bool weight = instruction.opcode == Opcode::kBackwardWeight && instruction.microbatch == 0;
      const bool backward =
          instruction.microbatch == 0 && (instruction.opcode == Opcode::kBackwardInput || weight);
      if ((forward || backward) && plan.outline.nodes[instruction.target].layer == (forward ? 0 : 1)) {
        const std::string& name = plan.outline.nodes[instruction.target].name;
        issued.push_back((forward ? "f." : weight ? "W." : "b.") + name.substr(name.rfind('.') + 1));
      }
    }
    EXPECT_EQ(issued, (std::vector<std::string>{"b.finish", "b.combine", "f.attention", "f.route",
                                                "f.permute", "b.experts", "f.dispatch", "W.experts",
                                                "b.dispatch", "f.experts", "f.combine", "b.permute",
                                                "b.route", "b.attention", "W.attention", "f.finish"}))
        << "rank " << step.timeline.rank;
  }
  EXPECT_EQ(recorded, 2);
}

// A text of one letter, nearly: the router sees the same token again and again, and sends it to the same
// experts. For one rank there are more rows than are computed at a time.
class SkewTest : public testing::Test {
 protected:
  SkewTest() {
    std::ofstream text(folder_.path() + "/text");
    for (int i = 0; i < 20000; ++i) {
      text << (i % 20 == 7 ? static_cast<char>('b' + i % 23) : 'a');
    }
    std::ofstream(folder_.path() + "/one") << std::string(20000, 'a');
  }

  // Tokens of a step over all ranks.
  static int64_t Tokens(const JobOptions& options) {
    return options.ranks * options.microbatches_per_rank * options.micro_batch_size * options.sequence_length;
  }

  JobOptions Options(int expert_parallel, int experts) const {
    JobOptions options = OnFourRanks();
    options.expert_parallel = expert_parallel;
    options.num_experts = experts;
    options.router_aux_loss = 0;
    options.text = folder_.path() + "/text";
    return options;
  }

  const TemporaryFolder folder_;
};

TEST_F(SkewTest, KeepsNumbersAndEverySchedulesBits) {
  for (const auto& [expert_parallel, experts] : std::vector<std::pair<int, int>>{{2, 4}, {4, 4}, {4, 16}}) {
    SCOPED_TRACE(testing::Message() << expert_parallel << " ranks share " << experts << " experts");
    JobOptions options = Options(expert_parallel, experts);
    for (const char* chunks : {"fixed", "exact"}) {
      options.chunks = chunks;
      ExpectSameBitsOfSchedules(options);
      JobOptions fp64 = options;
      fp64.fp64 = true;
      ExpectNumbersOfRanksWithEveryExpert(fp64);
    }
  }
}

TEST_F(SkewTest, AnOverloadedExpertReportsItsFurtherPasses) {
  for (const char* chunks : {"fixed", "exact"}) {
    SCOPED_TRACE(chunks);
    JobOptions options = Options(/*expert_parallel=*/2, /*experts=*/4);
    options.chunks = chunks;
    const JobRun run = RunJob(MakeJob(options));
    ASSERT_EQ(run.steps.size(), 4u);
    EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
    int64_t most = 0;
    int64_t passes = 0;
    for (const v1::ExpertLoad& load : run.steps.front().norms().experts()) {
      most = std::max(most, *std::max_element(load.tokens().begin(), load.tokens().end()));
      passes += load.further_passes();
    }
    EXPECT_GE(most * 10, Tokens(options) * 9);
    EXPECT_GT(passes, 0);
    EXPECT_EQ(run.steps.front().scalars().at("moe_further_passes"), passes);
    options.rows_at_a_time = 2;  // of two ranks one gets at most everything
    const JobRun at_once = RunJob(MakeJob(options));
    for (const v1::StepReport& step : at_once.steps) {
      EXPECT_EQ(step.scalars().at("moe_further_passes"), 0);
    }
  }
}

// Every token is the same: two of four ranks are sent all 16 tokens of each rank, twice what is expected.
TEST_F(SkewTest, TooManyReceivedRowsEndTheJob) {
  JobOptions options = Options(/*expert_parallel=*/4, /*experts=*/4);
  options.text = folder_.path() + "/one";
  options.most_rows = 1.5;
  const plan::JobPlan plan = MakeJob(options);
  std::exception_ptr found;
  // All ranks throw it, unless a rank that did so before has ended its exchange; so the first error may be of
  // either kind.
  for (int i = 0; i < 20 && found == nullptr; ++i) {
    try {
      RunJob(plan);
      FAIL() << "the job went on";
    } catch (const trainer::InstructionError& error) {
      if (trainer::Describe(std::current_exception()).cause.class_() == v1::FAILURE_CLASS_USER) {
        found = std::current_exception();
      }
    }
  }
  ASSERT_NE(found, nullptr);
  const v1::Cause cause = trainer::Describe(found).cause;
  EXPECT_EQ(cause.reason(), "InvalidJob");
  EXPECT_EQ(cause.step(), 1);
  EXPECT_THAT(cause.instruction(), testing::HasSubstr("layers.0.dispatch"));
  EXPECT_THAT(cause.message(), testing::MatchesRegex(
                                   "rank [0-3] of the 4 that share experts is sent 64 rows, and has room for "
                                   "48 .parallelism.dispatch.most_rows: 1.5.; give 2 or more, or omit the "
                                   "key.*"));
  options.most_rows = 2;
  EXPECT_EQ(RunJob(MakeJob(options)).steps.size(), 4u);
}

// Every token is the same: two of four ranks have its experts, and the others' compute nothing.
TEST_F(SkewTest, RanksWithoutTokensTakePartInEverySchedule) {
  JobOptions options = Options(/*expert_parallel=*/4, /*experts=*/4);
  options.text = folder_.path() + "/one";
  for (const char* chunks : {"fixed", "exact"}) {
    SCOPED_TRACE(chunks);
    options.chunks = chunks;
    const JobRun run = RunJob(MakeJob(options));
    for (const v1::ExpertLoad& load : run.steps.front().norms().experts()) {
      EXPECT_EQ(std::count(load.tokens().begin(), load.tokens().end(), 0), 2) << "layer " << load.layer();
    }
    ExpectSameBitsOfSchedules(options);
  }
}

// A checkpoint does not say how many ranks shared the experts.
TEST(ExpertParallelJobTest, ACheckpointResumesWithAnotherExpertParallelSize) {
  for (const int resumed_with : {1, 2, 4}) {
    SCOPED_TRACE(resumed_with);
    const TemporaryFolder folder;
    JobOptions options = OnFourRanks();
    options.fp64 = true;
    options.checkpoint_directory = folder.path();
    options.checkpoint_every_steps = 2;
    const JobRun whole = RunJob(MakeJob(options));
    const TemporaryFolder other;
    options.expert_parallel = resumed_with;
    options.checkpoint_directory = other.path();
    options.resume = folder.path() + "/step-2";
    const plan::JobPlan plan = MakeJob(options);
    const JobRun resumed = RunJob(plan);
    EXPECT_EQ(resumed.resumed_step, 2);
    if (resumed_with == 2) {
      ExpectSameBits(Tail(whole, 3), resumed);
    } else {
      ExpectClose(plan, Tail(whole, 3), resumed, kFp64);
    }
  }
}

}  // namespace
}  // namespace tandem::parity
