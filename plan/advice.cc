// SPDX-License-Identifier: Apache-2.0
#include "plan/advice.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/jobspec.h"
#include "jobspec/name_list.h"
#include "plan/quantity_text.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

using schedules::Opcode;

constexpr char kPrefetch[] = "parallelism.fsdp.prefetch";
constexpr char kMicroBatch[] = "training.micro_batch_size";
constexpr char kSchedule[] = "parallelism.schedule";
constexpr char kRecompute[] = "training.recompute";
constexpr char kStrategy[] = "parallelism.fsdp.strategy";
// Words of --compare for schedules.
constexpr char kSequential[] = "sequential";
constexpr char kOverlap[] = "overlap";
constexpr char kDelayed[] = "overlap+delay";
constexpr double kHidden = 0.02;      // of the step: below it, communication counts as hidden
constexpr double kWorthwhile = 0.01;  // of the step: what a change must save to be recommended

// What a person calls what compute waits for.
std::string Plural(Opcode opcode) {
  switch (opcode) {
    case Opcode::kUnshard:
      return "gathers";
    case Opcode::kReduceGradients:
      return "reductions";
    case Opcode::kGradientNorm:
      return "the norm";
    default:
      return schedules::ToText(opcode);
  }
}

// Whether training.recompute `words` computes again all that `now` does, and more.
bool RecomputesMore(const std::string& words, const std::string& now) {
  const std::vector<std::string> has = jobspec::NamesIn(words, "off");
  const std::vector<std::string> needs = jobspec::NamesIn(now, "off");
  const auto contains = [](const std::vector<std::string>& all, const std::string& word) {
    return std::find(all.begin(), all.end(), word) != all.end();
  };
  const bool covers = std::all_of(needs.begin(), needs.end(), [&](const std::string& word) {
    return contains(has, word) || (word != "head" && contains(has, "layer"));
  });
  return covers &&
         !std::all_of(has.begin(), has.end(), [&](const std::string& word) { return contains(needs, word); });
}

class Adviser {
 public:
  Adviser(const v1::JobSpec& resolved, const JobPlan& plan, const Prediction& prediction,
          const schedules::DeviceProfile& profile)
      : resolved_(resolved), plan_(plan), prediction_(prediction), profile_(profile) {}

  Advice Run() {
    TryAll();
    SayMemory();
    if (static_cast<double>(prediction_.exposed_ns) < kHidden * Step()) {
      SayCompute();
    } else {
      SayCommunication();
    }
    return std::move(advice_);
  }

 private:
  double Step() const { return static_cast<double>(prediction_.step_ns); }
  int64_t Compute() const { return ComputeNanoseconds(plan_, prediction_); }

  // Plans and simulates all changes side by side: each takes as long as the plan itself.
  void TryAll() {
    std::vector<std::future<Trial>> trials;
    const auto try_with = [&](Trial trial, v1::JobSpec changed) {
      if (jobspec::Validate(changed).empty()) {
        trials.push_back(
            std::async(std::launch::async, [this, trial = std::move(trial), changed = std::move(changed)] {
              return Measure(trial, changed);
            }));
      }
    };
    const int prefetch = resolved_.parallelism().fsdp().prefetch();
    // Where compute hardly ever stands still, a larger distance has nothing to hide.
    const bool stands_still = static_cast<double>(prediction_.step_ns - Compute()) >= kWorthwhile * Step();
    const auto number = [](int64_t n) { return absl::StrCat(n); };
    for (const int distance : {0, 1, 2}) {
      if (distance < prefetch || (distance > prefetch && stands_still)) {
        v1::JobSpec changed = resolved_;
        changed.mutable_parallelism()->mutable_fsdp()->set_prefetch(distance);
        try_with({.path = kPrefetch, .from = number(prefetch), .to = number(distance)}, std::move(changed));
      }
    }
    const int64_t micro = resolved_.training().micro_batch_size();
    for (const int64_t size : {micro * 2, micro / 2}) {
      if (size > 0 && size != micro) {
        v1::JobSpec changed = resolved_;
        changed.mutable_training()->set_micro_batch_size(size);
        try_with({.path = kMicroBatch, .from = number(micro), .to = number(size)}, std::move(changed));
      }
    }
    if (resolved_.parallelism().expert() > 1) {
      for (const std::string schedule : {kSequential, kOverlap, kDelayed}) {
        if (schedule != ScheduleNow()) {
          v1::JobSpec changed = resolved_;
          v1::Parallelism& parallelism = *changed.mutable_parallelism();
          parallelism.clear_overlap();
          parallelism.mutable_dispatch()->set_separate_weight_gradients(false);
          parallelism.set_schedule(schedule == kSequential ? v1::SCHEDULE_SEQUENTIAL : v1::SCHEDULE_OVERLAP);
          if (schedule != kSequential) {
            parallelism.mutable_overlap()->set_delay_weight_gradients(schedule == kDelayed);
          }
          try_with({.path = kSchedule, .from = ScheduleNow(), .to = schedule}, std::move(changed));
        }
      }
    }
    if (!Fits(prediction_.device_bytes())) {
      const std::string& now = resolved_.training().recompute();
      for (const char* words :
           {"head", "attention", "mlp", "attention,mlp", "attention,mlp,head", "layer", "layer,head"}) {
        if (RecomputesMore(words, now)) {
          v1::JobSpec changed = resolved_;
          changed.mutable_training()->set_recompute(words);
          try_with({.path = kRecompute, .from = now, .to = words}, std::move(changed));
        }
      }
      const v1::Strategy strategy = resolved_.parallelism().fsdp().strategy();
      if (strategy != v1::STRATEGY_ZERO3 && plan_.train.ranks > 1) {
        v1::JobSpec changed = resolved_;
        changed.mutable_parallelism()->mutable_fsdp()->set_strategy(v1::STRATEGY_ZERO3);
        changed.mutable_parallelism()->set_replicas(1);
        try_with({.path = kStrategy, .from = plan_.options.strategy.name, .to = "zero3"}, std::move(changed));
      }
    }
    for (std::future<Trial>& trial : trials) {
      advice_.trials.push_back(trial.get());
    }
  }

  // The trial with its numbers. Called from several threads.
  Trial Measure(Trial trial, const v1::JobSpec& changed) const {
    const JobPlan plan = MakeJobPlan(changed);
    const schedules::Program& program = plan.stage.train;
    const schedules::Timeline timeline =
        schedules::Simulate(plan.outline, program, WorkloadOf(plan), profile_).timeline;
    trial.step_ns = schedules::StepNanoseconds(program, timeline);
    trial.exposed_ns = schedules::ExposedCommunication(program, timeline);
    trial.arena_bytes = plan.stage.arena_bytes;
    trial.device_bytes = plan.stage.arena_bytes + OutsideBytes(plan, profile_);
    return trial;
  }

  std::string ScheduleNow() const {
    const v1::Parallelism& parallelism = resolved_.parallelism();
    return parallelism.schedule() != v1::SCHEDULE_OVERLAP   ? kSequential
           : parallelism.overlap().delay_weight_gradients() ? kDelayed
                                                            : kOverlap;
  }

  bool Fits(int64_t device_bytes) const {
    return profile_.memory_bytes == 0 || device_bytes <= profile_.memory_bytes;
  }

  static std::string Change(const Trial& trial) {
    return absl::StrCat(trial.path, " ", trial.to, " instead of ", trial.from,
                        trial.path == kMicroBatch ? " (same global batch)" : "");
  }

  std::string MemoryChange(const Trial& trial) const {
    const int64_t more = trial.arena_bytes - prediction_.memory.arena_bytes;
    return more == 0  ? "no more memory"
           : more > 0 ? absl::StrCat(SizeText(more), " more memory")
                      : absl::StrCat(SizeText(-more), " less memory");
  }

  // The trial that fits and whose step is the shortest; null where none of that path does.
  const Trial* Fastest(const char* path) const {
    const Trial* best = nullptr;
    for (const Trial& trial : advice_.trials) {
      if (trial.path == path && Fits(trial.device_bytes) &&
          (best == nullptr || trial.step_ns < best->step_ns)) {
        best = &trial;
      }
    }
    return best;
  }

  bool Saves(const Trial* trial) const {
    return trial != nullptr &&
           static_cast<double>(prediction_.step_ns - trial->step_ns) >= kWorthwhile * Step();
  }

  std::string Saving(const Trial& trial) const {
    const int64_t saved = prediction_.step_ns - trial.step_ns;
    return absl::StrCat(Change(trial), " saves ", DurationText(saved), " (",
                        ShareText(static_cast<double>(saved), Step()), ") for ", MemoryChange(trial));
  }

  // The changes that save something; without them, that nothing did.
  std::string TriedText() const {
    std::vector<std::string> help;
    for (const char* path : {kSchedule, kPrefetch, kMicroBatch}) {
      if (const Trial* trial = Fastest(path); Saves(trial)) {
        help.push_back(Saving(*trial));
      }
    }
    if (!help.empty()) {
      return absl::StrCat("Tried: ", absl::StrJoin(help, "; "), ".");
    }
    const bool too_large =
        std::any_of(advice_.trials.begin(), advice_.trials.end(),
                    [this](const Trial& trial) { return Saves(&trial) && !Fits(trial.device_bytes); });
    return absl::StrCat("No other prefetch", resolved_.parallelism().expert() > 1 ? ", schedule" : "",
                        " or micro_batch_size that was tried", too_large ? " and fits" : "", " saves 1 %.");
  }

  bool AnySaves() const {
    return Saves(Fastest(kSchedule)) || Saves(Fastest(kPrefetch)) || Saves(Fastest(kMicroBatch));
  }

  void SayMemory() {
    const int64_t needed = prediction_.device_bytes();
    if (Fits(needed)) {
      return;
    }
    std::string help = "use more ranks, or shorter sequences";
    const Trial* fastest = nullptr;
    const Trial* smallest = nullptr;
    for (const Trial& trial : advice_.trials) {
      if (Fits(trial.device_bytes) && (fastest == nullptr || trial.step_ns < fastest->step_ns)) {
        fastest = &trial;
      }
      if (trial.device_bytes < needed &&
          (smallest == nullptr || trial.device_bytes < smallest->device_bytes)) {
        smallest = &trial;
      }
    }
    if (fastest != nullptr) {
      help = absl::StrCat(Change(*fastest), " needs ", SizeText(fastest->device_bytes), " and fits");
    } else if (smallest != nullptr) {
      help =
          absl::StrCat(Change(*smallest), " needs ", SizeText(smallest->device_bytes), "; beside it ", help);
    }
    advice_.sentences.push_back(absl::StrCat("It does not fit: a rank needs ", SizeText(needed), " and ",
                                             profile_.name, " has ", SizeText(profile_.memory_bytes), "; ",
                                             help, "."));
  }

  // "backward layers.*.mlp 41 %": what takes the most of compute's time.
  std::string LargestKind() const {
    std::map<std::string, int64_t> kinds;
    const schedules::Program& program = plan_.stage.train;
    const schedules::StreamId compute = schedules::ComputeStream(program);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].stream == compute) {
        const schedules::InstructionTime& time = prediction_.simulation.timeline.instructions[i];
        if (time.end_ns > time.start_ns) {
          kinds[schedules::KindOf(plan_.outline, program, program.instructions[i])] +=
              time.end_ns - time.start_ns;
        }
      }
    }
    const auto largest = std::max_element(kinds.begin(), kinds.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    return largest == kinds.end() ? ""
                                  : absl::StrCat(largest->first, " ",
                                                 ShareText(static_cast<double>(largest->second),
                                                           static_cast<double>(Compute())));
  }

  void SayCompute() {
    const double compute = static_cast<double>(Compute());
    std::string text = absl::StrCat("Compute-bound: the compute stream works ", ShareText(compute, Step()),
                                    " of the step (most in ", LargestKind(), ")");
    const int64_t slowed = SlowedNanoseconds(plan_, prediction_);
    if (static_cast<double>(slowed) > kHidden * Step()) {
      absl::StrAppend(&text, ", ", DurationText(slowed),
                      " of it since communication beside it slows it down");
    }
    if (Communicates()) {
      absl::StrAppend(&text, "; of the communication only ", DurationText(prediction_.exposed_ns), " (",
                      ShareText(static_cast<double>(prediction_.exposed_ns), Step()), ") is exposed");
    }
    advice_.sentences.push_back(text + ".");

    // A smaller prefetch distance may hide as well and need less memory.
    const Trial* smaller = nullptr;
    for (const Trial& trial : advice_.trials) {
      if (trial.path == kPrefetch && trial.to < trial.from &&  // of one digit

          static_cast<double>(trial.step_ns - prediction_.step_ns) < kWorthwhile / 2 * Step() &&
          trial.arena_bytes < prediction_.memory.arena_bytes) {
        if (smaller == nullptr || trial.arena_bytes < smaller->arena_bytes) {
          smaller = &trial;
        }
      }
    }
    if (!AnySaves() && smaller != nullptr) {
      const int64_t longer = smaller->step_ns - prediction_.step_ns;
      advice_.sentences.push_back(
          absl::StrCat("Tried: ", Change(*smaller), " takes ", MemoryChange(*smaller), " and ",
                       longer > 0 ? absl::StrCat("only ", DurationText(longer), " (",
                                                 ShareText(static_cast<double>(longer), Step()), ") longer.")
                                  : "no longer."));
    } else {
      advice_.sentences.push_back(TriedText());
    }
  }

  bool Communicates() const { return plan_.train.ranks > 1; }

  void SayCommunication() {
    std::vector<std::string> parts;
    for (const auto& [opcode, nanoseconds] : prediction_.exposed_by) {
      parts.push_back(absl::StrCat(DurationText(nanoseconds), " for ", Plural(opcode)));
    }
    advice_.sentences.push_back(
        absl::StrCat(Communicates() ? "Communication" : "The copies of weights and gradients", ": ",
                     DurationText(prediction_.exposed_ns), " of the step (",
                     ShareText(static_cast<double>(prediction_.exposed_ns), Step()), ") is exposed",
                     parts.empty() ? "" : absl::StrCat("; compute waits ", absl::StrJoin(parts, ", ")), "."));
    advice_.sentences.push_back(absl::StrCat(LinkText(), TriedText()));
  }

  // Where one communication stream works longer than compute, no schedule hides it.
  std::string LinkText() const {
    const schedules::Program& program = plan_.stage.train;
    schedules::StreamId busiest = -1;
    for (schedules::StreamId s = 0; s < static_cast<int>(program.streams.size()); ++s) {
      if (schedules::Communicates(program, s) &&
          (busiest < 0 || prediction_.busy_ns[s] > prediction_.busy_ns[busiest])) {
        busiest = s;
      }
    }
    if (!Communicates() || busiest < 0 || prediction_.busy_ns[busiest] <= Compute()) {
      return "";
    }
    return absl::StrCat("The link limits: the ", program.streams[busiest].name, " stream needs ",
                        DurationText(prediction_.busy_ns[busiest]), " and compute ", DurationText(Compute()),
                        ", so ",
                        AnySaves() ? "no schedule hides it all without a faster link or more work a gather. "
                                   : "only a faster link or more work a gather helps. ");
  }

  const v1::JobSpec& resolved_;
  const JobPlan& plan_;
  const Prediction& prediction_;
  const schedules::DeviceProfile& profile_;
  Advice advice_;
};

}  // namespace

Advice Advise(const v1::JobSpec& resolved, const JobPlan& plan, const Prediction& prediction,
              const schedules::DeviceProfile& profile) {
  return Adviser(resolved, plan, prediction, profile).Run();
}

nlohmann::json AdviceToJson(const Advice& advice) {
  nlohmann::json tried = nlohmann::json::array();
  // A number where the field is one.
  const auto value = [](const std::string& text) {
    int64_t number = 0;
    return absl::SimpleAtoi(text, &number) ? nlohmann::json(number) : nlohmann::json(text);
  };
  for (const Trial& trial : advice.trials) {
    tried.push_back({{"path", trial.path},
                     {"from", value(trial.from)},
                     {"to", value(trial.to)},
                     {"step_seconds", static_cast<double>(trial.step_ns) * 1e-9},
                     {"exposed_seconds", static_cast<double>(trial.exposed_ns) * 1e-9},
                     {"arena_bytes", trial.arena_bytes},
                     {"device_bytes", trial.device_bytes}});
  }
  return {{"sentences", advice.sentences}, {"tried", tried}};
}

}  // namespace tandem::plan
