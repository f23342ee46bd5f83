// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/data_texts.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "jobspec/training_function.h"

namespace tandem::jobspec {
namespace {

constexpr int64_t kMaxTokensPerMicrobatch = int64_t{1} << 22;
constexpr int64_t kMaxTokensPerJob = int64_t{1} << 62;
constexpr int64_t kMaxLayerPasses = 65536;  // layers × microbatches of a rank: what a program can hold

// Microbatches that the ranks work on at the same time, as parallel::Topology has it of a grid without
// errors; 0 where the sizes mean nothing.
int64_t DataRanks(const FieldChecker& check) {
  if (!check.IsOk({"parallelism.tensor", "parallelism.context", "parallelism.pipeline"})) {
    return 0;
  }
  const v1::Parallelism& parallelism = check.spec().parallelism();
  int64_t product = 1;
  for (const int64_t size : {parallelism.tensor(), parallelism.context(), parallelism.pipeline()}) {
    if (size < 1 || size > 16384) {
      return 0;
    }
    product *= size;
  }
  return parallelism.ranks() / product;
}

// The steps of the warm-up, and those in which the rate falls.
void CheckLengths(FieldChecker& check, const v1::Training& training) {
  const v1::LearningRateSchedule& schedule = training.schedule();
  if (!check.Usable({"training.steps", "training.schedule.warmup_steps"})) {
    return;
  }
  const int64_t steps = training.steps();
  if (schedule.warmup_steps() > steps) {
    check.Refuse("training.schedule.warmup_steps", absl::StrCat("0 to training.steps ", steps),
                 "use fewer warm-up steps, or raise training.steps");
    return;
  }
  if (!check.Usable({"training.schedule.decay"}) || !FallsUntilTheLastStep(schedule.decay())) {
    return;
  }
  // The last step has min_learning_rate, so that another one must have the peak.
  if (steps == 1) {
    check.Refuse("training.schedule.decay", "constant with training.steps 1",
                 "the only step would have min_learning_rate: omit the key, or raise training.steps");
  } else if (schedule.warmup_steps() == steps) {
    check.Refuse("training.schedule.warmup_steps",
                 absl::StrCat("0 to ", steps - 1, " with ", check.Named("training.schedule.decay"),
                              " and training.steps ", steps),
                 "use fewer warm-up steps, or raise training.steps");
  } else if (check.Usable({"training.schedule.decay_steps"}) &&
             schedule.decay_steps() > steps - schedule.warmup_steps()) {
    check.Refuse("training.schedule.decay_steps",
                 absl::StrCat("1 to ", steps - schedule.warmup_steps(), " with training.steps ", steps,
                              " and ", check.Named("training.schedule.warmup_steps")),
                 "use fewer");
  }
}

void CheckLearningRate(FieldChecker& check, const v1::Training& training) {
  const v1::LearningRateSchedule& schedule = training.schedule();
  if (check.IsOk({"training.schedule.decay"}) && schedule.decay() != v1::DECAY_WSD) {
    for (const char* path : {"training.schedule.decay_steps", "training.schedule.decay_shape"}) {
      if (check.Usable({path})) {
        check.Forbid(path, absl::StrCat(check.Named("training.schedule.decay"),
                                        " does not have it: omit the key, or use decay: wsd"));
      }
    }
  }
  CheckLengths(check, training);
  if (check.Usable({"training.schedule.min_learning_rate", "training.optimizer.learning_rate"})) {
    if (schedule.min_learning_rate() > training.optimizer().learning_rate()) {
      check.Refuse("training.schedule.min_learning_rate",
                   absl::StrCat("0 to training.optimizer.", check.Named("training.optimizer.learning_rate")),
                   "use a smaller number");
    } else if (schedule.min_learning_rate() > 0 && schedule.decay() == v1::DECAY_CONSTANT &&
               check.IsOk({"training.schedule.decay"})) {
      check.Refuse("training.schedule.min_learning_rate",
                   absl::StrCat("0 with decay: constant", check.Origin("training.schedule.decay")),
                   "use another decay, or omit the key");
    }
  }
}

}  // namespace

void CheckTraining(FieldChecker& check) {
  const v1::Training& training = check.spec().training();
  if (check.Usable({"training.sequence_length", "model.max_position_embeddings"}) &&
      training.sequence_length() > check.spec().model().max_position_embeddings()) {
    check.Refuse("training.sequence_length",
                 absl::StrCat("at most model.", check.Named("model.max_position_embeddings")),
                 "use shorter sequences");
  }
  CheckLearningRate(check, training);
  if (check.Usable({"training.validate_every_steps", "data.validation_fraction"}) &&
      training.validate_every_steps() > 0 && !HoldsOut(check.spec().data())) {
    check.Refuse("training.validate_every_steps", "0 where no data is held out",
                 "give data.validation, or a validation_fraction above 0");
  }
}

void CheckBatch(FieldChecker& check) {
  const v1::Training& training = check.spec().training();
  const int64_t micro = training.micro_batch_size();
  const int64_t global = training.global_batch_size();
  const int64_t length = training.sequence_length();
  if (check.Usable({"training.micro_batch_size", "training.sequence_length"}) &&
      micro * length > kMaxTokensPerMicrobatch) {
    check.Refuse("training.micro_batch_size",
                 absl::StrCat("at most ", kMaxTokensPerMicrobatch / length, " with sequence_length ", length,
                              " (", kMaxTokensPerMicrobatch, " tokens a microbatch)"),
                 "use a smaller number: global_batch_size says how much a step sees");
  }
  const int64_t data_ranks = DataRanks(check);
  if (!check.Usable({"training.micro_batch_size", "training.global_batch_size", "parallelism.ranks"}) ||
      data_ranks == 0) {
    return;
  }
  const int64_t unit = micro * data_ranks;
  if (global % unit != 0) {
    check.Refuse("training.global_batch_size",
                 absl::StrCat("a multiple of ", unit, " (micro_batch_size ", micro, " × ", data_ranks,
                              data_ranks == 1 ? " rank)" : " ranks)"),
                 NearestMultiples(global, unit, 1 << 24));
    return;
  }
  const int64_t layers = NumLayersOf(check.spec().model());
  if (check.IsOk({"model.num_hidden_layers", "model.hybrid_pattern"}) && layers > 0 &&
      global / unit > kMaxLayerPasses / layers) {
    check.Refuse("training.global_batch_size",
                 absl::StrCat("at most ", kMaxLayerPasses / layers * unit, " (", kMaxLayerPasses / layers,
                              " microbatches of a rank, with ", layers, " layers)"),
                 "use a larger micro_batch_size, or more ranks");
    return;
  }
  if (check.Usable({"training.steps", "training.sequence_length"}) &&
      training.steps() > kMaxTokensPerJob / (global * length)) {
    check.Refuse("training.steps",
                 absl::StrCat("at most ", kMaxTokensPerJob / (global * length), " with ", global * length,
                              " tokens a step"),
                 "use fewer");
  }
}

}  // namespace tandem::jobspec
