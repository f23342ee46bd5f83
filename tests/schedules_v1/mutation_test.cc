#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "schedules_v1/checker.h"
#include "schedules_v1/cross_rank.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/interpreter.h"
#include "schedules_v1/text.h"
#include "tests/schedules/mutations.h"
#include "tests/schedules/test_outline.h"

// The checker against the interpreter, over random mutants: a mutant is harmful when the interpreter finds a
// run of it that stands still, touches what was released, or ends in other hashes than the mathematics.

namespace tandem::schedules_v1 {
namespace {

struct KindCounts {
  int harmful = 0;
  int harmless = 0;
};

struct Counts {
  int harmful_refused = 0;
  int harmless_accepted = 0;
  std::map<std::string, KindCounts> kinds;
  int unchanged = 0;
  int refused_jointly = 0;                      // each right alone, but not together
  int circles = 0;                              // of these, because they wait for each other
  std::map<std::string, int> harmless_refused;  // by hygiene rule
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  out << "harmful refused " << counts.harmful_refused << ", harmless accepted " << counts.harmless_accepted
      << ", harmless refused:";
  for (const auto& [rule, count] : counts.harmless_refused) {
    out << " " << rule << " " << count << ";";
  }
  return out << " mutations without effect " << counts.unchanged;
}

// Both counts of every kind of mutant; all of `kinds` are there and found to do harm.
void ExpectHarmOf(const std::vector<std::string>& kinds, const std::map<std::string, KindCounts>& found) {
  std::cout << "kinds, harmful + harmless:";
  for (const auto& [kind, counts] : found) {
    std::cout << " " << kind << " " << counts.harmful << " + " << counts.harmless << ";";
  }
  std::cout << "\n";
  for (const std::string& kind : kinds) {
    const auto counts = found.find(kind);
    EXPECT_TRUE(counts != found.end() && counts->second.harmful > 0) << kind;
  }
}

void Add(const std::map<std::string, KindCounts>& kinds, std::map<std::string, KindCounts>& sum) {
  for (const auto& [kind, counts] : kinds) {
    sum[kind].harmful += counts.harmful;
    sum[kind].harmless += counts.harmless;
  }
}

struct Job {
  Outline outline;
  FsdpOptions options;
  Program train;
  Program validate;
  Program snapshot = BuildSnapshotProgram();
  std::string name;
};

Job RandomJob(std::mt19937_64& random, bool experts) {
  const int layers = 1 + static_cast<int>(random() % 4);
  const int accumulation = 1 + static_cast<int>(random() % 4);
  const int prefetch = static_cast<int>(random() % 3);
  const bool tied = random() % 2 == 0;
  const bool one_class = random() % 3 == 0;  // every unit may take the slot of every other
  Job job{.outline = experts ? TestMoeOutline(layers) : TestOutline(layers, tied),
          .name = (experts ? "experts, " : "") + std::string() + "layers " + std::to_string(layers) +
                  ", accumulation " + std::to_string(accumulation) + ", prefetch " +
                  std::to_string(prefetch) + (tied ? ", tied" : "") + (one_class ? ", one class" : "")};
  job.options = TestOptions(job.outline, prefetch);
  if (one_class) {
    job.options.unit_parameter_slot_bytes.assign(job.outline.units.size(), 8192);
    job.options.unit_gradient_slot_bytes.assign(job.outline.units.size(), 8192);
  }
  job.train = BuildTrainProgram(job.outline, job.options, accumulation);
  job.validate = BuildValidateProgram(job.outline, job.options, 1 + static_cast<int>(random() % 2));
  ShareSlots(job.train, job.validate);
  return job;
}

std::vector<Ending> Expected(const Outline& outline, const std::vector<const Program*>& sequence,
                             const Job& job, const Program* trains, int ranks) {
  std::vector<Task> tasks;
  for (const Program* program : sequence) {
    tasks.push_back(program == trains          ? Task{Task::Kind::kTrain, job.train.num_microbatches}
                    : program == &job.snapshot ? Task{Task::Kind::kSnapshot}
                                               : Task{Task::Kind::kValidate, job.validate.num_microbatches});
  }
  return Meaning(outline, tasks, ranks);
}

// Judges one mutant; says what is wrong with the checker's answer.
void Judge(const absl::Status& status, const std::optional<std::string>& harm, const std::string& kind,
           const std::string& name, Counts& counts) {
  ++(harm ? counts.kinds[kind].harmful : counts.kinds[kind].harmless);
  if (harm && status.ok()) {
    ADD_FAILURE() << "accepted, but harmful: " << name << "\n  " << *harm;
  } else if (harm) {
    ++counts.harmful_refused;
  } else if (status.ok()) {
    ++counts.harmless_accepted;
  } else if (const absl::string_view rule = HygieneRule(status); !rule.empty()) {
    ++counts.harmless_refused[std::string(rule)];
  } else {
    ADD_FAILURE() << "harmless, but refused: " << name << "\n  " << status.message();
  }
}

bool SameProgram(const Program& a, const Program& b) {
  return a.instructions == b.instructions && a.parameter_slots == b.parameter_slots &&
         a.gradient_slots == b.gradient_slots;
}

Counts RunOneRank(uint64_t seed, int num_mutants, bool experts) {
  std::mt19937_64 random(seed);
  Counts counts;
  for (int k = 0; k < num_mutants;) {
    const Job job = RandomJob(random, experts);
    const bool of_validate = random() % 5 == 0;
    const Program& original = of_validate ? job.validate : job.train;
    const Mutant mutant = !of_validate && random() % 8 == 0
                              ? Reorder(job.outline, job.options, job.train.num_microbatches, random)
                              : Mutate(job.outline, original, random);
    if (SameProgram(mutant.program, original)) {
      ++counts.unchanged;
      continue;
    }
    const Program* train = of_validate ? &job.train : &mutant.program;
    const Program* validate = of_validate ? &mutant.program : &job.validate;
    std::vector<const Program*> sequence = {train, train};
    if (of_validate || random() % 2 == 0) {
      sequence.insert(sequence.begin() + 1, validate);
    }
    if (random() % 4 == 0) {
      sequence.insert(sequence.begin() + 1, &job.snapshot);
    }
    const Interpreter interpreter(job.outline, {sequence});
    const std::vector<Ending> expected = Expected(job.outline, sequence, job, train, 1);
    Judge(CheckSequence(job.outline, sequence), FindHarm(interpreter, expected, random(), 6), mutant.kind,
          job.name + ": " + mutant.change, counts);
    ++k;
  }
  return counts;
}

// Two ranks, of which one or both run mutants.
Counts RunTwoRanks(uint64_t seed, int num_mutants, bool experts) {
  std::mt19937_64 random(seed);
  Counts counts;
  for (int k = 0; k < num_mutants;) {
    const Job job = RandomJob(random, experts);
    Mutant a{"", "nothing", job.train};
    Mutant b = a;
    switch (random() % 3) {
      case 0:
        b = Mutate(job.outline, job.train, random);
        break;
      case 1:
        b = MoveMeeting(job.outline, job.train, random);
        break;
      default:
        std::tie(a, b) = OpposeMeetings(job.outline, job.train, random);
    }
    if (SameProgram(a.program, b.program)) {
      ++counts.unchanged;
      continue;
    }
    absl::Status status = CheckProgram(job.outline, a.program);
    if (status.ok()) {
      status = CheckProgram(job.outline, b.program);
    }
    if (status.ok()) {
      status = CheckRanks(InOneGroup(job.outline, {&a.program, &b.program}));
      counts.refused_jointly += status.ok() ? 0 : 1;
      counts.circles += absl::StrContains(status.message(), "for ever") ? 1 : 0;
    }
    const Interpreter interpreter(job.outline, {{&a.program, &a.program}, {&b.program, &b.program}});
    const Task step{Task::Kind::kTrain, job.train.num_microbatches};
    Judge(status, FindHarm(interpreter, Meaning(job.outline, {step, step}, 2), random(), 4), b.kind,
          "two ranks, " + job.name + ": a: " + a.change + "; b: " + b.change, counts);
    ++k;
  }
  return counts;
}

// And one that is new in every run.
std::vector<uint64_t> Seeds(std::vector<uint64_t> fixed) {
  fixed.push_back(std::random_device{}());
  return fixed;
}

// One more wait does no harm on one rank; memory that is never given back only where another stream relied on
// the release.
std::vector<std::string> HarmfulKinds(bool two_streams) {
  std::vector<std::string> kinds = MutationKinds();
  std::erase_if(kinds, [&](const std::string& kind) {
    return kind == "add wait" || (kind == "drop release" && !two_streams);
  });
  kinds.push_back("reorder");
  return kinds;
}

TEST(MutationTest, TheCheckerRefusesWhatTheInterpreterFindsHarmfulAndOnlyThat) {
  std::map<std::string, KindCounts> kinds;
  for (const uint64_t seed : Seeds({1, 2, 3, 4})) {
    const Counts counts = RunOneRank(seed, 500, /*experts=*/false);
    std::cout << "seed " << seed << ": " << counts << "\n";
    Add(counts.kinds, kinds);
  }
  ExpectHarmOf(HarmfulKinds(/*two_streams=*/false), kinds);
}

TEST(MutationTest, TwoRanksThatDifferAreRefusedWhereTheyGoWrongTogetherAndOnlyThere) {
  int refused_jointly = 0;
  int circles = 0;
  std::map<std::string, KindCounts> kinds;
  for (const uint64_t seed : Seeds({21, 22, 23})) {
    const Counts counts = RunTwoRanks(seed, 300, /*experts=*/seed == 23);
    std::cout << "seed " << seed << ": " << counts << "; of the refused, " << counts.refused_jointly
              << " were right alone, " << counts.circles << " would have waited for ever\n";
    refused_jointly += counts.refused_jointly;
    circles += counts.circles;
    Add(counts.kinds, kinds);
  }
  ExpectHarmOf({"move meeting", "oppose meetings"}, kinds);
  EXPECT_GT(refused_jointly, 50) << "hardly anything tried what only two ranks can do wrong";
  EXPECT_GT(circles, 0) << "nothing tried to stand still";
}

// Nodes on two streams, which recycle each other's memory.
TEST(MutationTest, TheSameHoldsWhereNodesRunOnTwoStreams) {
  std::map<std::string, KindCounts> kinds;
  for (const uint64_t seed : Seeds({11, 12})) {
    const Counts counts = RunOneRank(seed, 500, /*experts=*/true);
    std::cout << "seed " << seed << ": " << counts << "\n";
    Add(counts.kinds, kinds);
  }
  ExpectHarmOf(HarmfulKinds(/*two_streams=*/true), kinds);
}

}  // namespace
}  // namespace tandem::schedules_v1
