// SPDX-License-Identifier: Apache-2.0
#include "plan/advice.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/quantity_text.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

using schedules::Opcode;

constexpr double kHidden = 0.02;      // of the step: below it, communication counts as hidden
constexpr double kWorthwhile = 0.01;  // of the step: what a change must save to be recommended

// Of these the best change is said where it saves time.
constexpr ChangeKind kForTime[] = {ChangeKind::kSchedule, ChangeKind::kPrefetch, ChangeKind::kMicroBatch};

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
    case Opcode::kBackwardInput:
      return absl::StrCat(
          stream == "dispatch" ? "exchanges" : stream, " of the ",
          cause.opcode == Opcode::kBackwardInput ? "backward" : schedules::ToText(cause.opcode));
    default:
      return schedules::ToText(cause.opcode);
  }
}

class Adviser {
 public:
  Adviser(const v1::JobSpec& resolved, const JobPlan& plan, const Prediction& prediction,
          const schedules::DeviceProfile& profile)
      : resolved_(resolved), plan_(plan), prediction_(prediction), profile_(profile) {}

  Advice Run() {
    // Where compute hardly ever stands still, a larger prefetch distance has nothing to hide.
    const StepFindings findings = {
        .compute_waits = static_cast<double>(prediction_.step_ns - Compute()) >= kWorthwhile * Step(),
        .too_large = !Fits(prediction_.device_bytes())};
    advice_.trials = TryChanges(ChangesToTry(resolved_, findings), profile_);
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

  std::string ChangeText(const SpecChange& change) const {
    std::string text = change.field.to.empty() ? absl::StrCat("no ", change.field.path)
                                               : absl::StrCat(change.field.path, " ", change.field.to,
                                                              " instead of ", change.field.from);
    if (change.kind == ChangeKind::kMicroBatch) {
      text += MicrobatchText();
    } else if (change.kind == ChangeKind::kRepeatability) {
      text += " (results then do not repeat bit for bit)";
    }
    for (const FieldChange& field : change.beside) {
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

  // The trial for which `value` is the least, of those for which `counts`; null where there is none.
  template <typename Counts>
  const Trial* Least(int64_t Trial::*value, const Counts& counts) const {
    const Trial* least = nullptr;
    for (const Trial& trial : advice_.trials) {
      if (counts(trial) && (least == nullptr || trial.*value < least->*value)) {
        least = &trial;
      }
    }
    return least;
  }

  // The possible trial of that kind whose step is the shortest; null where there is none.
  const Trial* Fastest(ChangeKind kind) const {
    return Least(&Trial::step_ns, [&](const Trial& t) { return t.change.kind == kind && IsPossible(t); });
  }

  bool Saves(const Trial* trial) const {
    return trial != nullptr &&
           static_cast<double>(prediction_.step_ns - trial->step_ns) >= kWorthwhile * Step();
  }

  std::string Saving(const Trial& trial) const {
    const int64_t saved = prediction_.step_ns - trial.step_ns;
    return absl::StrCat(ChangeText(trial.change), " saves ", DurationShareText(saved, prediction_.step_ns),
                        " for ", MemoryChange(trial));
  }

  // The changes that save something; without them, that nothing did.
  std::string TriedText() const {
    std::vector<std::string> help;
    for (const ChangeKind kind : kForTime) {
      if (const Trial* trial = Fastest(kind); Saves(trial)) {
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
    return std::any_of(std::begin(kForTime), std::end(kForTime),
                       [this](ChangeKind kind) { return Saves(Fastest(kind)); });
  }

  // Of the trials that fit, the one whose step is the shortest; null where there is none.
  const Trial* FastestThatFits(bool repeats) const {
    return Least(&Trial::step_ns, [&](const Trial& t) {
      return (t.change.kind != ChangeKind::kRepeatability) == repeats && Fits(t.device_bytes);
    });
  }

  // The trial that needs the least; null where all need as much as the job.
  const Trial* Smallest() const {
    return Least(&Trial::device_bytes,
                 [&](const Trial& t) { return t.device_bytes < prediction_.device_bytes(); });
  }

  // What would make the job fit. Results that repeat may be worth more than time, so what keeps them is said
  // wherever it suffices.
  std::string FittingText() const {
    const Trial* const repeating = FastestThatFits(/*repeats=*/true);
    const Trial* const other = FastestThatFits(/*repeats=*/false);
    if (const Trial* const first = repeating != nullptr ? repeating : other; first != nullptr) {
      std::string text =
          absl::StrCat(ChangeText(first->change), " needs ", SizeText(first->device_bytes), " and fits");
      const double longer = other == nullptr ? 0 : static_cast<double>(first->step_ns - other->step_ns);
      if (longer >= kWorthwhile * Step()) {
        absl::StrAppend(&text, "; so does ", ChangeText(other->change), ", which needs ",
                        SizeText(other->device_bytes), " and ",
                        ShareText(longer, static_cast<double>(first->step_ns)), " less time");
      }
      return text;
    }
    const std::string elsewhere = "use more ranks, or shorter sequences";
    const Trial* const smallest = Smallest();
    return smallest == nullptr ? elsewhere
                               : absl::StrCat(ChangeText(smallest->change), " needs ",
                                              SizeText(smallest->device_bytes), "; beside it ", elsewhere);
  }

  void SayMemory() {
    const int64_t needed = prediction_.device_bytes();
    if (!Fits(needed)) {
      advice_.sentences.push_back(absl::StrCat("It does not fit: a rank needs ", SizeText(needed), " and ",
                                               profile_.name, " has ", SizeText(profile_.memory_bytes), "; ",
                                               FittingText(), "."));
    }
  }

  // "backward-input layers.*.mlp 41 %": what takes the most of compute's time.
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
      absl::StrAppend(&text, "; of the communication only ",
                      DurationShareText(prediction_.exposed_ns, prediction_.step_ns), " is exposed");
    }
    advice_.sentences.push_back(text + ".");

    // A smaller prefetch distance may hide as well and need less memory.
    const Trial* const smaller = Least(&Trial::arena_bytes, [&](const Trial& t) {
      return t.change.kind == ChangeKind::kPrefetch &&
             t.change.field.to < t.change.field.from &&  // of one digit
             static_cast<double>(t.step_ns - prediction_.step_ns) < kWorthwhile / 2 * Step() &&
             t.arena_bytes < prediction_.memory.arena_bytes;
    });
    if (!AnySaves() && smaller != nullptr) {
      const int64_t longer = smaller->step_ns - prediction_.step_ns;
      advice_.sentences.push_back(absl::StrCat(
          "Tried: ", ChangeText(smaller->change), " takes ", MemoryChange(*smaller), " and ",
          longer > 0 ? absl::StrCat("only ", DurationShareText(longer, prediction_.step_ns), " longer.")
                     : "no longer."));
    } else {
      advice_.sentences.push_back(TriedText());
    }
  }

  bool Communicates() const { return plan_.topology.world > 1; }

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
    advice_.sentences.push_back(absl::StrCat(
        Communicates() ? "Communication" : "Adding up gradients", ": ", DurationText(prediction_.exposed_ns),
        " of the step (", ShareText(static_cast<double>(prediction_.exposed_ns), Step()), ") is exposed",
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
    for (const FieldChange& change : trial.change.beside) {
      beside.push_back(field(change));
    }
    tried.push_back({{"path", trial.change.field.path},
                     {"from", value(trial.change.field.from)},
                     {"to", value(trial.change.field.to)},
                     {"beside", beside},
                     {"step_seconds", static_cast<double>(trial.step_ns) * 1e-9},
                     {"exposed_seconds", static_cast<double>(trial.exposed_ns) * 1e-9},
                     {"arena_bytes", trial.arena_bytes},
                     {"device_bytes", trial.device_bytes}});
  }
  return {{"sentences", advice.sentences}, {"tried", tried}};
}

}  // namespace tandem::plan
