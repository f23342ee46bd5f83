#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/pairs.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// The master test: whatever the placement of a job, its numbers are those of one rank with the same
// microbatches, in the tiers of design.md 5.

struct Placement {
  std::string strategy;
  int ranks = 1;
  int replicas = 1;
};

const std::vector<Placement>& Placements() {
  static const auto* const placements = [] {
    auto* all = new std::vector<Placement>;
    for (const char* strategy : {"replicate", "zero1", "zero2", "zero3"}) {
      for (const int ranks : {1, 2, 3, 4}) {
        all->push_back({strategy, ranks});
      }
    }
    all->push_back({"hsdp", 4, 2});
    all->push_back({"hfsdp", 4, 2});
    all->push_back({"hsdp", 3, 3});  // each rank a replica of its own
    all->push_back({"hfsdp", 2, 2});
    return all;
  }();
  return *placements;
}

constexpr int kAccumulations[] = {1, 3};
constexpr double kClips[] = {1e6, 0.1};  // inactive; active in every step
enum class Variant { kPlain, kTied, kFrozen, kUnused };
constexpr Variant kVariants[] = {Variant::kPlain, Variant::kTied, Variant::kFrozen, Variant::kUnused};
constexpr const char* kVariantNames[] = {"plain", "tied", "frozen", "unused"};

struct Case {
  explicit Case(const Choice& choice)
      : placement(Placements()[choice[0]]),
        accumulation(kAccumulations[choice[1]]),
        fp64(choice[2] == 1),
        clip(kClips[choice[3]]),
        variant(kVariants[choice[4]]) {}

  static std::vector<int> Sizes() {
    return {static_cast<int>(Placements().size()), std::size(kAccumulations), 2, std::size(kClips),
            std::size(kVariants)};
  }

  std::string Name() const {
    return absl::StrCat(placement.strategy, ", ", placement.ranks, " ranks, ", placement.replicas,
                        " replicas, accumulation ", accumulation, fp64 ? ", fp64" : ", fp32", ", clip ", clip,
                        ", ", kVariantNames[static_cast<int>(variant)]);
  }

  Placement placement;
  int accumulation;
  bool fp64;
  double clip;
  Variant variant;
};

JobOptions OptionsOf(const Case& of, const Placement& placement, int accumulation) {
  JobOptions options{.strategy = placement.strategy,
                     .ranks = placement.ranks,
                     .replicas = placement.replicas,
                     .microbatches_per_rank = accumulation,
                     .steps = 3,
                     .layers = 2,
                     .hidden = 16,
                     .inner = 24,
                     .heads = 2,
                     .kv_heads = 1,
                     .sequence_length = 8,
                     .clip = of.clip,
                     .tied = of.variant == Variant::kTied,
                     .fp64 = of.fp64,
                     .validate_every_steps = 2,
                     .validation_batches = 5};
  options.frozen = of.variant == Variant::kFrozen ? "embedding,layers.1" : "none";
  options.unused_unit = of.variant == Variant::kUnused;
  return options;
}

// Whether the order of addition is that of one rank (T1), so that losses and weights are the same bits.
bool HasBitsOfOneRank(const Case& of) {
  const std::string& strategy = of.placement.strategy;
  const bool one_stage = of.placement.replicas == 1;
  const bool folds_microbatches = strategy == "zero2" || strategy == "zero3";
  return one_stage && (folds_microbatches || of.accumulation == 1 || of.placement.ranks == 1);
}

class Matrix {
 public:
  void Expect(const Case& of) {
    SCOPED_TRACE(of.Name());
    const plan::JobPlan plan = MakeJob(OptionsOf(of, of.placement, of.accumulation));
    const JobRun run = RunJob(plan, {.fill_with_nan = true});
    const JobRun& one = OneRank(of);
    EXPECT_EQ(run.arena_bytes, std::vector<int64_t>(of.placement.ranks, plan.stage.arena_bytes));
    for (const trainer::StepSummary& step : one.steps) {
      EXPECT_EQ(step.nonfinite, 0);
      EXPECT_EQ(step.grad_norm > of.clip, of.clip < 1)
          << "clipping is to be " << (of.clip < 1 ? "" : "in") << "active";
    }
    if (HasBitsOfOneRank(of)) {
      ExpectSameBits(one, run);
    } else {
      ExpectClose(plan, one, run, of.fp64 ? kFp64 : kFp32);
    }
  }

 private:
  const JobRun& OneRank(const Case& of) {
    const int microbatches = of.placement.ranks * of.accumulation;
    const auto [found, fresh] = one_rank_.try_emplace({microbatches, of.fp64, of.clip, of.variant});
    if (fresh) {
      found->second = RunJob(MakeJob(OptionsOf(of, {"zero3", 1}, microbatches)));
    }
    return found->second;
  }

  std::map<std::tuple<int, bool, double, Variant>, JobRun> one_rank_;
};

void ExpectAll(const std::vector<Choice>& choices) {
  Matrix matrix;
  for (const Choice& choice : choices) {
    matrix.Expect(Case(choice));
  }
}

TEST(ParityMatrixTest, ASampleThatCoversAllPairsHasTheNumbersOfOneRank) {
  constexpr uint64_t kSeed = 20;
  const std::vector<Choice> choices = ChoicesThatCoverAllPairs(Case::Sizes(), kSeed);
  std::printf("seed %d, %zu of %zu cases\n", static_cast<int>(kSeed), choices.size(),
              AllChoices(Case::Sizes()).size());
  ExpectAll(choices);
}

// scripts/test.sh --full
TEST(ParityMatrixTest, DISABLED_EveryCaseHasTheNumbersOfOneRank) { ExpectAll(AllChoices(Case::Sizes())); }

}  // namespace
}  // namespace tandem::parity
