// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/field_rules.h"
#include "jobspec/schema.h"
#include "jobspec/step_size.h"
#include "parallel/from_spec.h"
#include "parallel/grid_sizes.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {

// An outer axis of ranks is there if and only if the strategy places something on it.
void CheckReplicas(FieldChecker& check) {
  const v1::Parallelism& parallelism = check.spec().parallelism();
  if (!check.Usable({"parallelism.replicas", "parallelism.fsdp.strategy"})) {
    return;
  }
  const v1::Strategy strategy = parallelism.fsdp().strategy();
  const std::string name = EnumText(*v1::Strategy_descriptor()->FindValueByNumber(strategy));
  const int64_t replicas = parallelism.replicas();
  const auto refuse = [&](const std::string& allowed, const std::string& remedy) {
    check.Refuse("parallelism.replicas", allowed, remedy);
  };
  if (HasReplicas(strategy) && replicas < 2) {
    refuse(absl::StrCat("2 or more with fsdp.strategy ", name), "omit the key for 2, or use strategy: zero3");
  } else if (!HasReplicas(strategy) && replicas > 1) {
    refuse(absl::StrCat("1 with fsdp.strategy ", name), "omit the key, or use strategy: hsdp, or hfsdp");
  } else if (check.Usable({"parallelism.ranks"}) && parallelism.ranks() % replicas != 0) {
    if (check.IsWritten("parallelism.replicas")) {
      refuse(absl::StrCat("a divisor of ranks ", parallelism.ranks()),
             "all replicas have the same number of ranks: use another number of replicas, or of ranks");
    } else {
      check.Refuse("parallelism.fsdp.strategy", name,
                   absl::StrCat("replicate, zero1, zero2, zero3 with ranks ", parallelism.ranks(), ", which ",
                                replicas, " replicas (the default) do not divide"),
                   "give replicas, or use another number of ranks");
    }
  }
}

// What is simulated when a job is submitted: on a device that is known, in a few seconds.
void CheckPrefetch(FieldChecker& check) {
  constexpr char kPrefetch[] = "parallelism.fsdp.prefetch";
  constexpr char kCompare[] = "`tandem plan --compare prefetch=0,1,2` says which number is best";
  const v1::JobSpec& spec = check.spec();
  if (!check.Usable({kPrefetch}) || spec.parallelism().fsdp().prefetch() != kWord) {
    return;
  }
  if (check.Usable({"resources.device"}) && spec.resources().device() == v1::DEVICE_AUTO) {
    check.Refuse(
        kPrefetch, "auto", absl::StrCat("0 to 2 with device: auto", check.Origin("resources.device")),
        absl::StrCat("say device: cpu or cuda, for which the step is then simulated; or ", kCompare));
    return;
  }
  if (!check.IsOk({"model.num_hidden_layers", "model.hybrid_pattern"}) ||
      !check.Usable({"parallelism.ranks", "training.micro_batch_size", "training.global_batch_size"})) {
    return;
  }
  if (const int64_t passes = NodePasses(spec); passes > kMostSimulated) {
    const int64_t round = SequencesOfARound(spec);
    check.Refuse(kPrefetch, "auto",
                 absl::StrCat("0 to 2 where nodes × microbatches of a rank are more than ", kMostSimulated,
                              ", as here: ", passes),
                 absl::StrCat("simulating them would take long; `tandem plan --set "
                              "training.global_batch_size=",
                              round * std::max<int64_t>(1, kMostSimulated / NodesOf(spec)),
                              " --compare prefetch=0,1,2` says of a smaller step which number is best"));
  }
}

void CheckSchedule(FieldChecker& check) {
  if (check.spec().parallelism().has_overlap() && check.Usable({"parallelism.schedule"}) &&
      check.spec().parallelism().schedule() != v1::SCHEDULE_OVERLAP) {
    check.Forbid("parallelism.overlap",
                 absl::StrCat("schedule: sequential", check.Origin("parallelism.schedule"),
                              " overlaps no passes: omit the block, or use schedule: overlap"));
  }
  const v1::Parallelism& parallelism = check.spec().parallelism();
  if (parallelism.has_dispatch() && check.Usable({"parallelism.expert"}) && parallelism.expert() == 1) {
    check.Forbid("parallelism.dispatch",
                 absl::StrCat("with expert: 1", check.Origin("parallelism.expert"),
                              " no ranks share experts: omit the block, or give expert"));
  } else if (check.Usable({"parallelism.schedule", "parallelism.dispatch.separate_weight_gradients"}) &&
             parallelism.dispatch().separate_weight_gradients() &&
             parallelism.schedule() == v1::SCHEDULE_OVERLAP) {
    check.Refuse("parallelism.dispatch.separate_weight_gradients", "true", "false with schedule: overlap",
                 "the overlap has other work for that time: omit the key, or use schedule: sequential");
  }
  const v1::Dispatch& dispatch = parallelism.dispatch();
  if (check.Usable({"parallelism.dispatch.most_rows"}) && dispatch.most_rows() > 0) {
    if (dispatch.most_rows() < 1) {
      check.Refuse("parallelism.dispatch.most_rows", absl::StrCat(dispatch.most_rows()), "0, or 1 to 1024",
                   "a balanced router sends 1 times the expected rows: use a larger number, or omit the key");
    } else if (dispatch.chunks() == v1::CHUNKS_FIXED) {
      check.Refuse("parallelism.dispatch.chunks", "fixed", "auto, exact with most_rows",
                   "a fixed chunk has room for all tokens of a rank: omit one of the two keys");
    }
  }
}

// The rank grid, as parallel/ judges it. Where a size is refused already, only the names in the order mean
// something.
void CheckGrid(FieldChecker& check) {
  const bool sizes =
      check.IsOk({"parallelism.ranks", "parallelism.tensor", "parallelism.context", "parallelism.pipeline",
                  "parallelism.expert", "parallelism.expert_tensor", "parallelism.replicas"});
  parallel::GridSizes grid;
  if (sizes) {
    grid = parallel::GridOf(check.spec().parallelism());
  } else {
    grid.order = check.spec().parallelism().order();
  }
  if (!check.IsOk({"parallelism.order"})) {
    return;
  }
  for (const parallel::GridViolation& violation : parallel::CheckGrid(grid)) {
    const std::string path =
        absl::StrCat("parallelism.", violation.field == "world" ? "ranks" : violation.field);
    if (violation.field == "replicas" && !check.IsWritten(path)) {
      // The strategy has brought them; CheckReplicas may have named it.
      const v1::Strategy strategy = check.spec().parallelism().fsdp().strategy();
      check.Refuse(
          "parallelism.fsdp.strategy", EnumText(*v1::Strategy_descriptor()->FindValueByNumber(strategy)),
          absl::StrCat("replicate, zero1, zero2, zero3 where replicas ", violation.value,
                       " (the default) are not ", violation.allowed),
          "use one of these, or another number of ranks, of replicas, or of ranks that share experts");
      continue;
    }
    check.Refuse(path, absl::StrCat(violation.value, check.Origin(path)), violation.allowed,
                 platform::Shown(violation.remedy, 300));
  }
}

}  // namespace tandem::jobspec
