// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicators.h"
#include "device/device.h"
#include "fsdp/unit_shard.h"
#include "model/node.h"
#include "ops/operations.h"
#include "tests/parity/job.h"
#include "tests/trainer/hanging_communicator.h"
#include "trainer/backend.h"
#include "trainer/executor.h"
#include "trainer/memberships.h"
#include "trainer/rank.h"
#include "trainer/stage_memory.h"

namespace tandem::trainer {

// The memory, units and communicators of rank 0 of a plan, without an executor.
class RankOnPlan {
 protected:
  RankOnPlan(plan::JobPlan plan, bool fill_with_nan)
      : plan_(std::move(plan)),
        nodes_(model::DecoderNodes(plan_.model, plan_.batch, plan_.precision, backend_->operations())),
        memory_(plan_.stage, backend_->device(), backend_->device().Reserve(plan_.stage.arena_bytes),
                fill_with_nan),
        units_(MakeUnits(plan_, 0, *backend_)) {
    ConnectGroups();
  }

  // Requires communicators that have not been aborted.
  void ConnectGroups() {
    const std::vector<comm::CommunicatorUse> uses = CommunicatorUsesOf(plan_);
    std::vector<comm::Membership> groups;
    for (const comm::CommunicatorUse& use : uses) {
      groups.push_back({.group = use.group, .size = plan_.topology.world});
    }
    communicators_.emplace(factory_, groups, uses);
  }

  const std::unique_ptr<Backend> backend_ = MakeCpuBackend();
  const plan::JobPlan plan_;
  const std::vector<std::unique_ptr<model::Node>> nodes_;
  const StageMemory memory_;
  const std::vector<fsdp::UnitShard> units_;
  HangingFactory factory_;
  std::optional<comm::Communicators> communicators_;
};

// That rank with an executor, without the training loop.
class ExecutorTest : public testing::Test, protected RankOnPlan {
 protected:
  explicit ExecutorTest(int ranks = 1)
      : RankOnPlan(parity::MakeJob({.ranks = ranks, .microbatches_per_rank = 2, .validate_every_steps = 1}),
                   /*fill_with_nan=*/true),
        states_(StatesOf(plan_, memory_)) {
    InitializeUnits();
    ResetExecutor();
  }

  // Sets the same weights each time.
  void InitializeUnits() {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      const std::vector<fsdp::ParameterInit> inits(plan_.units[unit].parameters.size(), {.deviation = 0.02});
      units_[unit].Initialize(1, inits, states_[unit]);
    }
  }

  // A new executor and groups, without the errors of earlier ones.
  void ResetExecutor() {
    executor_.reset();
    ConnectGroups();
    executor_ = std::make_unique<Executor>(plan_, nodes_, units_, memory_, *communicators_, page_, *backend_,
                                           ExecutorOptions{.fill_with_nan = true});
  }

  static void Load(int microbatch, int64_t* tokens, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      tokens[i] = (i * 7 + microbatch) % 256;
    }
  }

  BatchReader::Load Load() const {
    return [count = plan_.batch.sequences * (plan_.batch.sequence_length + 1)](
               int microbatch, int64_t* tokens) { Load(microbatch, tokens, count); };
  }

  static RunRequest Begin(int64_t step) { return {.run = {.kind = RunKind::kBegin, .computed = step}}; }
  static RunRequest Train(int64_t step) {
    return {.run = {.kind = RunKind::kTrain, .applied = step - 1, .computed = step},
            .update = step - 1,
            .learning_rate = 1e-3};
  }
  static RunRequest Update(int64_t step) {
    return {.run = {.kind = RunKind::kUpdate, .applied = step}, .update = step, .learning_rate = 1e-3};
  }

  RunRecord IssueAndAwait(const RunRequest& request) {
    executor_->Issue(request, Load());
    return executor_->Await();
  }

  const std::vector<fsdp::StateMemory> states_;
  link::SharedPage page_;
  std::unique_ptr<Executor> executor_;
};

// Rank 0 of two ranks. A fake peer sends back what rank 0 sends, so that gathers and exchanges run.
class ExecutorOfTwoRanksTest : public ExecutorTest {
 protected:
  ExecutorOfTwoRanksTest() : ExecutorTest(/*ranks=*/2) {}
};

}  // namespace tandem::trainer
