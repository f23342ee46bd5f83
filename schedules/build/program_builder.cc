// SPDX-License-Identifier: Apache-2.0
#include "schedules/build/program_builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "schedules/passes/passes.h"
#include "schedules/passes/segments.h"
#include "schedules/program/stages.h"
#include "schedules/program/text.h"

namespace tandem::schedules {
namespace {

class StageBuilder {
 public:
  StageBuilder(const Outline& outline, const BuildOptions& options)
      : outline_(outline), options_(options), frame_(MakeStageFrame(outline, options)) {
    persistent_ = PlacePersistent(frame_.buffers);
  }

  absl::StatusOr<StagePrograms> Build(const PassList& train, const PassList& validate) {
    StagePrograms stage;
    stage.train = Order("train", train, options_.num_microbatches, {.update = true, .gradients = true});
    stage.begin = Order("begin", train, options_.num_microbatches, {.gradients = true});
    stage.update = Order("update", {}, 0, {.update = true});
    if (!validate.empty()) {
      stage.validate = Order("validate", validate, options_.num_validation_microbatches, {});
    }
    if (options_.saves) {
      stage.train_save = Order("train_save", train, options_.num_microbatches,
                               {.update = true, .gradients = true, .saves = true});
    }
    Program* const programs[] = {&stage.train, &stage.begin, &stage.update, &stage.validate,
                                 &stage.train_save};

    int64_t budget = options_.budget_bytes;
    for (const Program* program : programs) {
      const Budgets budgets = BudgetsOf(*program);
      if (options_.budget_bytes == 0) {
        budget = std::max(budget, budgets.by_default);
      } else if (budget < budgets.least) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a budget of ", budget, " bytes is less than the ", budgets.least, " bytes that ", program->name,
            OfStage(), " needs at least, at ", ToText(program->instructions[budgets.least_at], outline_),
            ": allow that many, or omit the budget"));
      }
    }
    stage.persistent_bytes = persistent_.arena;
    for (Program* program : programs) {
      const SharedAddresses shared = ShareAddresses(*program);
      const VectorClocks clocks = InsertWaits(budget, shared.before, *program);
      const bool is_like_train = program == &stage.begin || program == &stage.train_save;
      const PersistentBytes ends = PlaceLocals(clocks, persistent_, budget, shared.before,
                                               is_like_train ? &stage.train : nullptr, *program);
      stage.arena_bytes = std::max(stage.arena_bytes, ends.arena);
      stage.host_bytes = std::max(stage.host_bytes, ends.host);
    }
    stage.saved_at = stage.host_bytes;
    for (Program* program : programs) {
      stage.host_bytes = std::max(stage.host_bytes, PlaceSaved(stage.saved_at, program->buffers));
    }
    return stage;
  }

 private:
  // All passes but waits and addresses.
  Program Order(std::string name, const PassList& passes, int num_microbatches, ProgramParts parts) const {
    Program program = ExpandPasses(outline_, frame_, options_.recompute,
                                   InsertRecompute(outline_, options_.recompute, passes), num_microbatches,
                                   /*trains=*/parts.gradients);
    program.name = std::move(name);
    ShardUnits(outline_, options_, frame_, parts, program);
    OrderInstructions(outline_, options_.prefetch, program);
    if (parts.gradients && !options_.replayed.empty()) {
      MarkSegments(options_.replayed, program);
    }
    return program;
  }

  // " of stage 1"; nothing if there is one stage.
  std::string OfStage() const {
    return IsDivided(outline_) ? absl::StrCat(" of stage ", outline_.stage) : "";
  }

  const Outline& outline_;
  const BuildOptions& options_;
  StageFrame frame_;
  PersistentBytes persistent_;
};

}  // namespace

absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         const PassList& train, const PassList& validate) {
  TANDEM_CHECK(options.num_microbatches > 0, "a step has a microbatch at least");
  return StageBuilder(outline, options).Build(train, validate);
}

absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         Schedule schedule) {
  const int microbatches = options.num_microbatches;
  const bool overlaps = schedule == Schedule::kOverlapped || schedule == Schedule::kOverlappedUndelayed;
  const PassList train =
      overlaps ? Overlapped(outline, microbatches, /*delay_weights=*/schedule == Schedule::kOverlapped)
               : Sequential(outline, microbatches);
  return BuildStage(outline, options, train, ForwardOnly(outline, options.num_validation_microbatches));
}

}  // namespace tandem::schedules
