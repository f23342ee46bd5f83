// SPDX-License-Identifier: Apache-2.0
#include "trainer/say_ready.h"

#include <map>
#include <utility>

#include "plan/prediction.h"
#include "platform/build_info.h"
#include "platform/log.h"
#include "tandem/v1/workers.pb.h"
#include "trainer/step_reports.h"

namespace tandem::trainer {
namespace {

v1::Ready ReadyOf(const ReadyRank& rank) {
  v1::Ready ready;
  ready.set_program_digest(rank.plan.program_digest);
  ready.set_layout_digest(rank.plan.parameters_digest);
  ready.set_data_digest(rank.text.train().content_digest());
  ready.set_kernels_digest(rank.kernels_digest);
  ready.set_resumed_step(rank.start.info.step);
  ready.set_build(platform::BuildVersion());
  if (rank.start.from.kind() == v1::START_KIND_CHECKPOINT) {
    ready.set_resumed_from(rank.start.from.path());
  }
  *ready.mutable_started_from() = rank.start.from;
  ready.set_arena_bytes(rank.plan.stage.arena_bytes);
  ready.set_device_used_bytes(rank.memory.used);
  ready.set_device_total_bytes(rank.memory.total);
  const std::map<std::string, double> sent = plan::SentBytes(rank.plan);
  ready.mutable_sent_bytes()->insert(sent.begin(), sent.end());
  return ready;
}

}  // namespace

void SayReady(const ReadyRank& rank, const SendToWorker& send) {
  v1::FromTrainer message;
  *message.mutable_ready() = ReadyOf(rank);
  send(std::move(message));
  if (!rank.is_first) {
    return;
  }
  if (rank.plan.model.moe.router.deals) {
    constexpr char kWarning[] =
        "this job measures speed alone: debug.balanced_routing deals the tokens evenly to the experts, "
        "whatever the router says, and the losses mean nothing";
    platform::Log(platform::LogLevel::kWarning, kWarning, {});
    send(TrainingWarningOf(rank.start.info.step, kWarning));
  }
  platform::Log(platform::LogLevel::kInfo, "the text", {{"files", rank.text.summary()}});
  v1::FromTrainer text = TrainingWarningOf(rank.start.info.step, rank.text.summary());
  text.mutable_training_warning()->set_is_data(true);
  send(std::move(text));
}

}  // namespace tandem::trainer
