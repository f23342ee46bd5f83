// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/sweep.h"

#include <algorithm>
#include <optional>
#include <ostream>
#include <random>
#include <utility>

#include "schedules/check/check.h"
#include "schedules/check/rules.h"
#include "tests/oracle/explorer.h"
#include "tests/oracle/mutations.h"
#include "tests/oracle/random_job.h"
#include "tests/oracle/step_reference.h"

namespace tandem::oracle {

using schedules::Life;
using schedules::Program;
using schedules::StagePrograms;

namespace {

using Member = Program StagePrograms::*;

std::vector<Member> Members(const std::vector<std::string>& names) {
  std::vector<Member> members;
  for (const std::string& name : names) {
    members.push_back(name == "train"        ? &StagePrograms::train
                      : name == "begin"      ? &StagePrograms::begin
                      : name == "update"     ? &StagePrograms::update
                      : name == "train_save" ? &StagePrograms::train_save
                                             : &StagePrograms::validate);
  }
  return members;
}

// Runs that end in the program, and more.
std::vector<std::string> Until(Member program) {
  if (program == &StagePrograms::train) {
    return {"begin", "train"};
  }
  if (program == &StagePrograms::train_save) {
    return {"begin", "train_save"};
  }
  if (program == &StagePrograms::update) {
    return {"begin", "update"};
  }
  return program == &StagePrograms::begin ? std::vector<std::string>{"begin"}
                                          : std::vector<std::string>{"validate"};
}
std::vector<std::string> Around(Member program) {
  if (program == &StagePrograms::train) {
    return {"begin", "train", "train"};
  }
  if (program == &StagePrograms::train_save) {
    return {"train", "train_save", "train"};
  }
  if (program == &StagePrograms::update) {
    return {"begin", "update", "begin"};
  }
  return program == &StagePrograms::begin ? std::vector<std::string>{"begin", "train"}
                                          : std::vector<std::string>{"validate", "begin"};
}

// Every local in a place of its own.
StagePrograms Unaliased(StagePrograms stage) {
  for (Program* program : {&stage.train, &stage.begin, &stage.update, &stage.validate, &stage.train_save}) {
    int64_t arena = std::max(stage.persistent_bytes, stage.arena_bytes);
    int64_t host = stage.host_bytes;
    for (schedules::Buffer& buffer : program->buffers) {
      if (buffer.life == Life::kLocal) {
        int64_t& next = IsHost(buffer.kind) ? host : arena;
        buffer.address = next;
        next += buffer.bytes.bound;
      }
    }
  }
  return stage;
}

class Judge {
 public:
  Judge(const Job& job, std::mt19937_64& random, Counts& counts)
      : job_(job), random_(random), counts_(counts) {}

  void Unchanged() {
    ++counts_.unchanged;
    for (const Member program : Members({"train", "begin", "update", "validate", "train_save"})) {
      if (!(job_.stage.*program).instructions.empty()) {
        One(job_.stage, program, "unchanged", "as it is");
      }
    }
  }

  // One stage of which one program may be changed.
  void One(const StagePrograms& stage, Member program, const std::string& kind, const std::string& change) {
    ++counts_.programs;
    const std::string name = job_.name + ": " + change;
    if (!CheckFormed(job_.outline, job_.options, stage).ok()) {
      ++counts_.kinds[kind].malformed;
      if (kind == "unchanged") {
        counts_.disagreements.push_back("the passes' own program is refused: " + name + "\n  " +
                                        CheckFormed(job_.outline, job_.options, stage).ToString());
      }
      return;
    }
    const absl::Status status = CheckStage(job_.outline, job_.options, stage);
    const absl::Status agreed = CheckAgreed(job_.outline, job_.options, stage);
    const absl::Status meant = CheckMeant(job_.outline, job_.options, stage);
    const StagePrograms unaliased = Unaliased(stage);
    const auto difference =
        FirstDifference(Expected(Until(program)), Explore(unaliased, Until(program)).RunInIssueOrder());
    // Between which ranks a collective works is for rule 4, what graphs know for rule 6.
    const bool graphed = CheckGraphed(job_.outline, job_.options, stage.*program).ok();
    if (agreed.ok() && graphed && meant.ok() == difference.has_value()) {
      counts_.disagreements.push_back(name + "\n  rule 5: " + meant.ToString() +
                                      "\n  oracle: " + difference.value_or("no difference"));
    }
    const std::optional<std::string> harm =
        Explore(stage, Around(program)).FindHarm(Expected(Around(program)), /*max_pairs=*/6, random_);
    Classify(status, harm, kind, name);
  }

 private:
  void Classify(const absl::Status& status, const std::optional<std::string>& harm, const std::string& kind,
                const std::string& name) {
    const std::string rule(status.message().substr(0, status.message().find(':')));
    ++(harm ? counts_.kinds[kind].harmful : counts_.kinds[kind].harmless);
    if (harm && status.ok()) {
      counts_.harmful_accepted.push_back(name + "\n  " + *harm);
    } else if (harm) {
      ++counts_.harmful_refused;
      ++counts_.harmful_by_rule[rule];
    } else if (status.ok()) {
      ++counts_.harmless_accepted;
    } else {
      ++counts_.harmless_refused[rule];
      counts_.harmless.push_back(name + "\n  " + status.ToString());
      if (kind == "unchanged") {
        counts_.disagreements.push_back("the passes' own program is refused: " + name + "\n  " +
                                        status.ToString());
      }
    }
  }

  Explorer Explore(const StagePrograms& stage, const std::vector<std::string>& runs) const {
    std::vector<const Program*> programs;
    for (const Member member : Members(runs)) {
      programs.push_back(&(stage.*member));
    }
    return Explorer(job_.outline, job_.options, stage, std::move(programs));
  }

  const Observations& Expected(const std::vector<std::string>& runs) {
    const auto [found, first] = expected_.try_emplace(runs);
    if (first) {
      found->second = ReferenceOf(job_.outline, job_.options, job_.stage, runs);
    }
    return found->second;
  }

  const Job& job_;
  std::mt19937_64& random_;
  Counts& counts_;
  std::map<std::vector<std::string>, Observations> expected_;
};

}  // namespace

void Counts::Add(const Counts& other) {
  programs += other.programs;
  unchanged += other.unchanged;
  harmful_refused += other.harmful_refused;
  harmless_accepted += other.harmless_accepted;
  for (const auto& [rule, count] : other.harmful_by_rule) {
    harmful_by_rule[rule] += count;
  }
  for (const auto& [rule, count] : other.harmless_refused) {
    harmless_refused[rule] += count;
  }
  for (const auto& [kind, count] : other.kinds) {
    kinds[kind].harmful += count.harmful;
    kinds[kind].harmless += count.harmless;
    kinds[kind].malformed += count.malformed;
  }
  harmful_accepted.insert(harmful_accepted.end(), other.harmful_accepted.begin(),
                          other.harmful_accepted.end());
  harmless.insert(harmless.end(), other.harmless.begin(), other.harmless.end());
  disagreements.insert(disagreements.end(), other.disagreements.begin(), other.disagreements.end());
}

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  const auto by_rule = [&](const std::map<std::string, int>& rules) {
    for (const auto& [rule, count] : rules) {
      out << " " << rule << " " << count;
    }
  };
  out << counts.programs << " programs of " << counts.unchanged << " jobs\nharmful: refused "
      << counts.harmful_refused << " (";
  by_rule(counts.harmful_by_rule);
  out << " ), accepted " << counts.harmful_accepted.size() << "\nharmless: accepted "
      << counts.harmless_accepted << ", refused (";
  by_rule(counts.harmless_refused);
  out << " )\nrule 5 and the oracle disagree: " << counts.disagreements.size()
      << "\nharmful + harmless + malformed of each kind:\n";
  for (const auto& [kind, of] : counts.kinds) {
    out << "  " << kind << ": " << of.harmful << " + " << of.harmless << " + " << of.malformed << "\n";
  }
  return out;
}

Counts Sweep(uint64_t seed, int num_programs, Job (*next)(std::mt19937_64&)) {
  constexpr int kMutantsOfJob = 12;
  std::mt19937_64 random(seed);
  Counts counts;
  while (counts.programs < num_programs) {
    const Job job = next(random);
    Judge judge(job, random, counts);
    judge.Unchanged();
    for (int k = 0; k < kMutantsOfJob; ++k) {
      const Mutant mutant = Mutate(job.outline, job.stage, random);
      judge.One(mutant.stage, mutant.program, mutant.kind, mutant.change);
    }
  }
  return counts;
}

}  // namespace tandem::oracle
