// SPDX-License-Identifier: Apache-2.0
#include "trainer/daemon_observer.h"

#include <time.h>

#include <utility>

#include "platform/build_info.h"
#include "tandem/v1/trainer.pb.h"
#include "trainer/outbox.h"

namespace tandem::trainer {
namespace {

v1::StepTimeline ToProto(const RecordedRun& recorded) {
  const schedules::Timeline& from = recorded.timeline;
  v1::StepTimeline timeline;
  timeline.set_program(from.program);
  timeline.set_rank(from.rank);
  timeline.set_step(from.step);
  timeline.set_serialized(from.serialized);
  timeline.set_start_unix_ns(recorded.start_unix_ns);
  for (const schedules::InstructionTime& time : from.instructions) {
    timeline.add_start_ns(time.start_ns);
    timeline.add_end_ns(time.end_ns);
    timeline.add_cpu_ns(time.cpu_ns);
  }
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof processors, &processors) == 0) {
    timeline.set_processors(CPU_COUNT(&processors));
  }
  return timeline;
}

}  // namespace

DaemonObserver::DaemonObserver(Outbox& outbox, int attempt, std::string table_digest)
    : outbox_(outbox), attempt_(attempt), table_digest_(std::move(table_digest)) {}

void DaemonObserver::OnReady(const RankReady& ready) {
  v1::FromTrainer message;
  v1::Ready& out = *message.mutable_ready();
  out.set_program_digest(ready.program_digest);
  out.set_layout_digest(ready.layout_digest);
  out.set_data_digest(ready.data_digest);
  out.set_kernels_digest(ready.kernels_digest);
  out.set_resumed_step(ready.resumed_step);
  out.set_build(platform::BuildVersion());
  out.set_resumed_from(ready.resumed_from);
  out.set_arena_bytes(ready.arena_bytes);
  out.set_device_used_bytes(ready.memory.used);
  out.set_device_total_bytes(ready.memory.total);
  out.mutable_sent_bytes()->insert(ready.sent_bytes.begin(), ready.sent_bytes.end());
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnParameters(const std::vector<plan::TrainedParameter>& parameters) {
  v1::FromTrainer message;
  v1::ParameterTable& table = *message.mutable_table();
  table.set_digest(table_digest_);
  for (const plan::TrainedParameter& parameter : parameters) {
    v1::Parameter& row = *table.add_parameters();
    row.set_name(parameter.name);
    row.mutable_shape()->Add(parameter.shape.begin(), parameter.shape.end());
  }
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnReport(const v1::StepReport& report) {
  v1::FromTrainer message;
  v1::StepReport& out = *message.mutable_report();
  out = report;
  out.set_attempt(attempt_);
  if (out.norms().weight_size() > 0) {
    out.mutable_norms()->set_table_digest(table_digest_);
  }
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnCheckpoint(int64_t step, const checkpoint::Saved& saved) {
  v1::FromTrainer message;
  v1::CheckpointCommitted& committed = *message.mutable_checkpoint();
  committed.set_step(step);
  committed.set_path(saved.path);
  committed.set_bytes(saved.bytes);
  committed.set_manifest_digest(saved.manifest_digest);
  committed.set_seconds(saved.seconds);
  committed.mutable_removed_steps()->Add(saved.removed_steps.begin(), saved.removed_steps.end());
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnCheckpointWarning(const v1::CheckpointWarning& warning) {
  v1::FromTrainer message;
  *message.mutable_checkpoint_warning() = warning;
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnNonfinite(int64_t step, const std::string& text) {
  v1::FromTrainer message;
  message.mutable_training_warning()->set_step(step);
  message.mutable_training_warning()->set_message(text);
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnProfiledStep(uint64_t id, const RecordedRun& recorded, bool last) {
  v1::FromTrainer message;
  v1::ProfiledStep& profiled = *message.mutable_profiled();
  profiled.set_id(id);
  *profiled.mutable_timeline() = ToProto(recorded);
  profiled.set_last(last);
  outbox_.Push(std::move(message));
}

void DaemonObserver::OnRequestsDone(const std::vector<uint64_t>& ids, const std::string& error) {
  for (const uint64_t id : ids) {
    v1::FromTrainer message;
    message.set_request_done(id);
    message.set_request_error(error);
    outbox_.Push(std::move(message));
  }
}

}  // namespace tandem::trainer
