// SPDX-License-Identifier: Apache-2.0
#include "trainer/resume_checks.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/manifest.h"
#include "jobspec/model_function.h"
#include "jobspec/training_function.h"
#include "plan/learning_rate.h"
#include "trainer/data_position.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

constexpr char kResume[] = "checkpoint.resume";

// "F64" → "fp64"
std::string TypeName(const std::string& dtype) { return absl::StrCat("fp", absl::StripPrefix(dtype, "F")); }

void CheckSameType(const char* field, const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.weights_dtype == options.weights_dtype) {
    return;
  }
  throw UserError(absl::StrCat(
      field, ": ", found.path, " holds weights in ", TypeName(found.weights_dtype),
      ", and this job's are in ", TypeName(options.weights_dtype), "; allowed: precision: {compute: ",
      found.weights_dtype == "F64" ? "fp64" : "fp32 or bf16", "}, or start in another folder"));
}

[[noreturn]] void RefuseModel(const char* field, const checkpoint::Found& found,
                              const std::string& differences) {
  throw UserError(absl::StrCat(field, ": ", found.path, " is of another model: ", differences,
                               "; resume with the model it was trained with, or start in another folder"));
}

// Names and shapes of weights, of which only the number of elements is known in version 2.
void CheckSameParameters(const ResumeOptions& options, const checkpoint::Found& found) {
  for (const auto& [name, shape] : options.parameters) {
    const auto there = found.weights.find(name);
    if (there == found.weights.end()) {
      RefuseModel(kResume, found, absl::StrCat("it has no ", name));
    }
    const bool is_flat = there->second.size() == 1 && there->second[0] == fsdp::NumElements(shape);
    if (there->second != shape && !is_flat) {
      RefuseModel(kResume, found,
                  absl::StrCat(name, " is ", checkpoint::ShapeText(shape), ", and ",
                               checkpoint::ShapeText(there->second), " there"));
    }
  }
  for (const auto& [name, shape] : found.weights) {
    if (!options.parameters.contains(name)) {
      RefuseModel(kResume, found, absl::StrCat("this job has no ", name));
    }
  }
}

// Heads, eps, experts a token, ...: what no shape of a tensor shows.
void CheckSameFunction(const char* field, const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.info.model.empty()) {
    return;  // of a build that did not write it
  }
  const absl::StatusOr<std::vector<std::string>> differences =
      jobspec::ModelDifferences(found.info.model, options.model);
  if (!differences.ok()) {
    throw UserError(absl::StrCat(field, ": ", found.path, ": ", differences.status().message()));
  }
  if (!differences->empty()) {
    RefuseModel(field, found, absl::StrJoin(*differences, "; "));
  }
}

// A router chooses others without its bias, and one that starts again in the middle forgets what it has
// learnt.
void CheckSameStates(const char* field, const ResumeOptions& options, const checkpoint::Found& found) {
  const bool theirs = !found.states.empty();
  if (theirs == !options.states.empty()) {
    return;
  }
  throw UserError(
      absl::StrCat(field, ": ", found.path, " was saved ", theirs ? "with" : "without",
                   " biases of routers (", theirs ? found.states.front() : options.states.front(),
                   "), and this job has ", theirs ? "none" : "some", "; allowed: model.moe: ",
                   theirs ? "{router_bias_update_rate: more than 0}" : "{router_bias_update_rate: 0}",
                   ", or start in another folder"));
}

// A job whose steps are all done has nothing left to do, but one that ends before its start is a mistake.
void CheckNotPastTheEnd(const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.info.step <= options.last_step) {
    return;
  }
  throw UserError(absl::StrCat("training.steps: ", options.last_step, " is not allowed: ", found.path,
                               ", which the job goes on from, is of step ", found.info.step,
                               "; allowed: at least ", found.info.step,
                               "; raise training.steps, or resume from an earlier checkpoint"));
}

// How the job trains otherwise than the checkpoint's job did. Empty: as that.
std::string OtherTraining(const std::string& training, const checkpoint::Info& there) {
  if (there.training.empty()) {
    return "";  // of a build that did not write it
  }
  const absl::StatusOr<v1::JobSpec> theirs = jobspec::ReadTrainingFunction(there.training);
  const absl::StatusOr<v1::JobSpec> ours = jobspec::ReadTrainingFunction(training);
  if (!theirs.ok() || !ours.ok()) {
    return absl::StrCat("it is not known whether the job trains as it did up to step ", there.step, ": ",
                        (theirs.ok() ? ours : theirs).status().message());
  }
  std::vector<std::string> texts;
  for (const jobspec::FieldDifference& difference : jobspec::TrainingDifferences(*theirs, *ours)) {
    texts.push_back(absl::StrCat(difference.field, " is ", difference.here, ", and was ", difference.there));
  }
  if (texts.empty()) {
    return "";
  }
  std::string out =
      absl::StrCat("the job trains otherwise than up to step ", there.step, ": ", absl::StrJoin(texts, "; "));
  const auto rate = [](const v1::Training& training, int64_t step) {
    return plan::LearningRate(plan::LearningRateScheduleOf(training), step, training.steps());
  };
  const double before = rate(theirs->training(), std::max<int64_t>(1, there.step));
  const double expected = rate(theirs->training(), there.step + 1);
  const double now = rate(ours->training(), there.step + 1);
  if (now != expected) {
    absl::StrAppend(&out, "; the learning rate of step ", there.step + 1, " is ", now, ", and that of step ",
                    there.step, " was ", before);
  }
  return out;
}

}  // namespace

v1::CheckpointWarning WarningOf(v1::CheckpointProblem problem, int64_t step, const std::string& path,
                                const std::string& message) {
  v1::CheckpointWarning warning;
  warning.set_problem(problem);
  warning.set_step(step);
  warning.set_path(path);
  warning.set_message(message);
  return warning;
}

void CheckResumable(const ResumeOptions& options, const checkpoint::Found& found) {
  CheckSameType(kResume, options, found);
  CheckSameFunction(kResume, options, found);
  CheckSameParameters(options, found);
  CheckSameStates(kResume, options, found);
  CheckNotPastTheEnd(options, found);
  ContinueData(found.info, options.data);
}

void CheckStartable(const ResumeOptions& options, const checkpoint::Found& found) {
  constexpr char kField[] = "checkpoint.start_from";
  CheckSameType(kField, options, found);
  CheckSameFunction(kField, options, found);
  CheckSameStates(kField, options, found);
}

std::vector<v1::CheckpointWarning> DifferencesOf(const ResumeOptions& options,
                                                 const checkpoint::Found& start) {
  std::vector<v1::CheckpointWarning> warnings;
  const auto add = [&](v1::CheckpointProblem problem, const std::string& message) {
    warnings.push_back(WarningOf(problem, start.info.step, start.path, message));
  };
  if (start.info.seed && *start.info.seed != options.data.seed) {
    add(v1::CHECKPOINT_PROBLEM_OTHER_SEED,
        absl::StrCat("training.seed is ", options.data.seed, ", and was ", *start.info.seed, " up to step ",
                     start.info.step, ": from there on the text comes in another order"));
  }
  std::vector<std::string> of_text;  // one warning: a job's record has no room for more
  if (!start.info.data_digest.empty() && start.info.data_digest != options.data_digest) {
    of_text.push_back(absl::StrCat(
        "the text is not what it was up to step ", start.info.step, " (digest ",
        options.data_digest.substr(0, 12), ", was ", start.info.data_digest.substr(0, 12),
        "): data.train, data.validation, data.documents or data.count_first_token has changed, and the "
        "losses before and after cannot be compared"));
  } else if (!start.info.data_content_digest.empty() &&
             start.info.data_content_digest != options.data_content_digest) {
    of_text.push_back(absl::StrCat(
        "the text is not what it was up to step ", start.info.step,
        ": files of data.train or data.validation have the same names and sizes and other contents, and the "
        "losses before and after cannot be compared"));
  }
  if (const DataStart data = ContinueData(start.info, options.data); !data.changes.empty()) {
    of_text.push_back(absl::StrCat("the text is read otherwise than up to step ", start.info.step, ": ",
                                   absl::StrJoin(data.changes, "; ")));
  }
  if (!of_text.empty()) {
    add(v1::CHECKPOINT_PROBLEM_OTHER_DATA, absl::StrJoin(of_text, "; "));
  }
  if (const std::string text = OtherTraining(options.training, start.info); !text.empty()) {
    add(v1::CHECKPOINT_PROBLEM_OTHER_TRAINING, text);
  }
  return warnings;
}

}  // namespace tandem::trainer
