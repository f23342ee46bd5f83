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
#include "absl/types/span.h"
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
constexpr char kOverlapBlock[] = "parallelism.overlap";
constexpr char kDelay[] = "parallelism.overlap.delay_weight_gradients";
constexpr char kSeparate[] = "parallelism.dispatch.separate_weight_gradients";
// What one says of a schedule, whichever field is changed.
constexpr const char* kSchedulePaths[] = {kSchedule, kDelay, kSeparate};
constexpr double kHidden = 0.02;      // of the step: below it, communication counts as hidden
constexpr double kWorthwhile = 0.01;  // of the step: what a change must save to be recommended

// What a person calls what compute waits for. Node passes that communicate are exchanges; on a stream of
// their own that is not the rows' they have its name: "sizes of the forward".
std::string CauseText(const schedules::Program& program, const schedules::StallCause& cause) {
  const std::string& stream = program.streams[cause.stream].name;
  switch (cause.opcode) {
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
      return "gathers";
    case Opcode::kReduceGradients:
    case Opcode::kReduceOuter:
      return "reductions";
    case Opcode::kGradientNorm:
      return "the norm";
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackward:
      return absl::StrCat(stream == "dispatch" ? "exchanges" : stream, " of the ",
                          schedules::ToText(cause.opcode));
    default:
      return schedules::ToText(cause.opcode);
  }
}

// How microbatches follow each other where ranks share experts.
struct ScheduleChoice {
  bool overlaps = false;
  bool delays = false;
  bool separates = false;
  bool operator==(const ScheduleChoice&) const = default;
};

ScheduleChoice ScheduleOf(const v1::Parallelism& parallelism) {
  return {.overlaps = parallelism.schedule() == v1::SCHEDULE_OVERLAP,
          .delays = parallelism.overlap().delay_weight_gradients(),
          .separates = parallelism.dispatch().separate_weight_gradients()};
}

v1::JobSpec WithSchedule(v1::JobSpec job, const ScheduleChoice& to) {
  v1::Parallelism& parallelism = *job.mutable_parallelism();
  parallelism.set_schedule(to.overlaps ? v1::SCHEDULE_OVERLAP : v1::SCHEDULE_SEQUENTIAL);
  parallelism.mutable_dispatch()->set_separate_weight_gradients(to.separates);
  parallelism.clear_overlap();
  if (to.overlaps) {
    parallelism.mutable_overlap()->set_delay_weight_gradients(to.delays);
  }
  return job;
}

// The fields of a spec that make the one of the other.
Trial TrialOf(const ScheduleChoice& from, const ScheduleChoice& to) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  const auto name = [](bool overlaps) { return overlaps ? "overlap" : "sequential"; };
  std::vector<FieldChange> fields;
  if (from.overlaps != to.overlaps) {
    fields.push_back({kSchedule, name(from.overlaps), name(to.overlaps)});
  }
  if (from.overlaps && !to.overlaps) {
    fields.push_back({kOverlapBlock, "{...}", ""});
  } else if (from.delays != to.delays) {
    fields.push_back({kDelay, truth(from.delays), truth(to.delays)});
  }
  if (from.separates != to.separates) {
    fields.push_back({kSeparate, truth(from.separates), to.separates ? "true" : ""});
  }
  return {.field = fields.front(), .beside = {fields.begin() + 1, fields.end()}};
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
        try_with({.field = {kPrefetch, number(prefetch), number(distance)}}, std::move(changed));
      }
    }
    const int64_t micro = resolved_.training().micro_batch_size();
    for (const int64_t size : {micro * 2, micro / 2}) {
      if (size > 0 && size != micro) {
        v1::JobSpec changed = resolved_;
        changed.mutable_training()->set_micro_batch_size(size);
        try_with({.field = {kMicroBatch, number(micro), number(size)}}, std::move(changed));
      }
    }
    if (resolved_.parallelism().expert() > 1) {
      const ScheduleChoice now = ScheduleOf(resolved_.parallelism());
      for (const ScheduleChoice& other :
           {ScheduleChoice{}, ScheduleChoice{.separates = true}, ScheduleChoice{.overlaps = true},
            ScheduleChoice{.overlaps = true, .delays = true}}) {
        if (other != now) {
          try_with(TrialOf(now, other), WithSchedule(resolved_, other));
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
          try_with({.field = {kRecompute, now, words}}, std::move(changed));
        }
      }
      const v1::Strategy strategy = resolved_.parallelism().fsdp().strategy();
      if (strategy != v1::STRATEGY_ZERO3 && plan_.train.ranks > 1) {
        v1::JobSpec changed = resolved_;
        changed.mutable_parallelism()->mutable_fsdp()->set_strategy(v1::STRATEGY_ZERO3);
        changed.mutable_parallelism()->set_replicas(1);
        Trial trial{.field = {kStrategy, plan_.options.strategy.name, "zero3"}};
        if (const int replicas = resolved_.parallelism().replicas(); replicas > 1) {
          trial.beside = {{"parallelism.replicas", absl::StrCat(replicas), "1"}};
        }
        try_with(std::move(trial), std::move(changed));
      }
    }
    for (std::future<Trial>& trial : trials) {
      advice_.trials.push_back(trial.get());
    }
  }

  // The trial with its numbers. Called from several threads.
  Trial Measure(Trial trial, const v1::JobSpec& changed) const {
    const JobPlan plan = MakeUndigestedPlan(changed);
    const schedules::Program& program = plan.stage.train;
    const schedules::Timeline timeline =
        schedules::Simulate(plan.outline, program, WorkloadOf(plan), profile_).timeline;
    trial.step_ns = schedules::StepNanoseconds(program, timeline);
    trial.exposed_ns = schedules::ExposedCommunication(program, timeline);
    trial.arena_bytes = plan.stage.arena_bytes;
    trial.device_bytes = plan.stage.arena_bytes + OutsideBytes(plan, profile_);
    return trial;
  }

  bool Fits(int64_t device_bytes) const {
    return profile_.memory_bytes == 0 || device_bytes <= profile_.memory_bytes;
  }

  // For a job that does not fit, also what is no larger: it does not make that worse.
  bool IsPossible(const Trial& trial) const {
    return Fits(trial.device_bytes) ||
           (!Fits(prediction_.device_bytes()) && trial.device_bytes <= prediction_.device_bytes());
  }

  // What of a sparse job's numbers is of a microbatch, so that another size gives others.
  std::string MicrobatchText() const {
    const v1::MixtureOfExperts& moe = resolved_.model().moe();
    std::vector<std::string> counted;
    if (moe.capacity_factor() > 0) {
      counted.emplace_back("experts' capacity");
    }
    if (moe.router_aux_loss_coef() > 0 && moe.router_aux_loss_scope() != v1::BALANCE_SCOPE_SEQUENCE) {
      counted.emplace_back("the routers' loss");
    }
    return counted.empty()
               ? " (same global batch)"
               : absl::StrCat(" (same global batch, other results: ", absl::StrJoin(counted, " and "),
                              counted.size() > 1 ? " are" : " is", " of a microbatch)");
  }

  std::string Change(const Trial& trial) const {
    std::string text = absl::StrCat(trial.field.path, " ", trial.field.to, " instead of ", trial.field.from,
                                    trial.field.path == kMicroBatch ? MicrobatchText() : "");
    if (trial.field.to.empty()) {
      text = absl::StrCat("no ", trial.field.path);
    }
    for (const FieldChange& field : trial.beside) {
      absl::StrAppend(&text, field.to.empty() ? " without " : " with ", field.path,
                      field.to.empty() ? "" : " ", field.to);
    }
    return text;
  }

  std::string MemoryChange(const Trial& trial) const {
    const int64_t more = trial.arena_bytes - prediction_.memory.arena_bytes;
    return more == 0  ? "no more memory"
           : more > 0 ? absl::StrCat(SizeText(more), " more memory")
                      : absl::StrCat(SizeText(-more), " less memory");
  }

  // The possible trial whose step is the shortest; null where there is none of these paths.
  const Trial* Fastest(absl::Span<const char* const> paths) const {
    const Trial* best = nullptr;
    for (const Trial& trial : advice_.trials) {
      if (std::find(paths.begin(), paths.end(), trial.field.path) != paths.end() && IsPossible(trial) &&
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
    for (const absl::Span<const char* const> paths : Kinds()) {
      if (const Trial* trial = Fastest(paths); Saves(trial)) {
        help.push_back(Saving(*trial));
      }
    }
    if (!help.empty()) {
      return absl::StrCat("Tried: ", absl::StrJoin(help, "; "), ".");
    }
    const bool too_large =
        std::any_of(advice_.trials.begin(), advice_.trials.end(),
                    [this](const Trial& trial) { return Saves(&trial) && !IsPossible(trial); });
    return absl::StrCat("No other prefetch", resolved_.parallelism().expert() > 1 ? ", schedule" : "",
                        " or micro_batch_size that was tried", too_large ? " and fits" : "", " saves 1 %.");
  }

  bool AnySaves() const {
    return std::any_of(Kinds().begin(), Kinds().end(),
                       [this](absl::Span<const char* const> paths) { return Saves(Fastest(paths)); });
  }

  // Paths of changes of which the best is said.
  static const std::vector<absl::Span<const char* const>>& Kinds() {
    static constexpr const char* kPrefetchPaths[] = {kPrefetch};
    static constexpr const char* kMicroBatchPaths[] = {kMicroBatch};
    static const std::vector<absl::Span<const char* const>> kinds = {kSchedulePaths, kPrefetchPaths,
                                                                     kMicroBatchPaths};
    return kinds;
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
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (schedules::Computes(program, program.instructions[i].stream)) {
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
    std::string text = absl::StrCat("Compute-bound: compute works ", ShareText(compute, Step()),
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
      if (trial.field.path == kPrefetch && trial.field.to < trial.field.from &&  // of one digit
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
    const schedules::Program& program = plan_.stage.train;
    std::map<std::string, int64_t> waits;
    int64_t computing = 0;
    for (const auto& [cause, nanoseconds] : prediction_.stalls) {
      if (schedules::Computes(program, cause.stream)) {
        computing += nanoseconds;
      } else {
        waits[CauseText(program, cause)] += nanoseconds;
      }
    }
    std::vector<std::string> parts;
    for (const auto& [what, nanoseconds] : waits) {
      parts.push_back(absl::StrCat(DurationText(nanoseconds), " for ", what));
    }
    advice_.sentences.push_back(
        absl::StrCat(Communicates() ? "Communication" : "The copies of weights and gradients", ": ",
                     DurationText(prediction_.exposed_ns), " of the step (",
                     ShareText(static_cast<double>(prediction_.exposed_ns), Step()), ") is exposed",
                     parts.empty() ? "" : absl::StrCat("; compute waits ", absl::StrJoin(parts, ", ")), ".",
                     computing == 0 ? ""
                                    : absl::StrCat(" It also waits ", DurationText(computing),
                                                   " for weight gradients on their own stream.")));
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
    const std::string& stream = program.streams[busiest].name;
    // Gathers and reductions are of a microbatch, however large it is; what is exchanged grows with it.
    const char* const help =
        stream == "gather" || stream == "reduce" ? "a faster link or more work a gather" : "a faster link";
    return absl::StrCat("The link limits: the ", stream, " stream needs ",
                        DurationText(prediction_.busy_ns[busiest]), " and compute ", DurationText(Compute()),
                        ", so ",
                        AnySaves() ? absl::StrCat("no schedule hides it all without ", help, ". ")
                                   : absl::StrCat("only ", help, " helps. "));
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
  const auto field = [&](const FieldChange& change) {
    return nlohmann::json{{"path", change.path}, {"from", value(change.from)}, {"to", value(change.to)}};
  };
  for (const Trial& trial : advice.trials) {
    nlohmann::json beside = nlohmann::json::array();
    for (const FieldChange& change : trial.beside) {
      beside.push_back(field(change));
    }
    tried.push_back({{"path", trial.field.path},
                     {"from", value(trial.field.from)},
                     {"to", value(trial.field.to)},
                     {"beside", beside},
                     {"step_seconds", static_cast<double>(trial.step_ns) * 1e-9},
                     {"exposed_seconds", static_cast<double>(trial.exposed_ns) * 1e-9},
                     {"arena_bytes", trial.arena_bytes},
                     {"device_bytes", trial.device_bytes}});
  }
  return {{"sentences", advice.sentences}, {"tried", tried}};
}

}  // namespace tandem::plan
