// SPDX-License-Identifier: Apache-2.0
#include "tests/controller/simulated_worker.h"

#include <chrono>
#include <set>

namespace tandem::controller {

SimulatedWorker::SimulatedWorker(std::string id, std::string address, Script script)
    : id_(std::move(id)),
      address_(std::move(address)),
      script_(std::move(script)),
      thread_([this] { Run(); }) {}

SimulatedWorker::~SimulatedWorker() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    if (context_ != nullptr) {
      context_->TryCancel();
    }
  }
  thread_.join();
}

void SimulatedWorker::Run() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1::Workers::NewStub(grpc::CreateCustomChannel(
      address_, script_.credentials != nullptr ? script_.credentials : grpc::InsecureChannelCredentials(),
      arguments));
  while (true) {
    {
      const std::lock_guard lock(mu_);
      if (stopping_) {
        return;
      }
      context_ = std::make_unique<grpc::ClientContext>();
      context_->set_wait_for_ready(true);
    }
    Serve(*stub);
    if (script_.mute) {
      return;
    }
  }
}

void SimulatedWorker::Serve(v1::Workers::Stub& stub) {
  const std::unique_ptr<Stream> stream = stub.Session(context_.get());
  v1::WorkerMessage hello;
  {
    const std::lock_guard lock(mu_);
    stream_ = stream.get();
    stub_ = &stub;
    seq_ = 0;
    v1::Hello& h = *hello.mutable_hello();
    h.set_worker_id(id_);
    h.set_incarnation(reinterpret_cast<uint64_t>(this));
    h.set_build("simulated");
    h.set_protocol_min(1);
    h.set_protocol_max(1);
    h.set_highest_term(term_);
    h.mutable_inventory()->set_hostname("here");
    for (int i = 0; i < script_.slots; ++i) {
      v1::Slot& slot = *h.mutable_inventory()->add_slots();
      slot.set_index(i);
      slot.set_device(v1::DEVICE_CPU);
      slot.set_healthy(true);
    }
    for (const auto& [key, status] : attempts_) {
      *h.mutable_inventory()->add_attempts() = status;
    }
    Send(hello);
  }
  v1::ControllerMessage message;
  while (stream->Read(&message)) {
    const std::lock_guard lock(mu_);
    switch (message.item_case()) {
      case v1::ControllerMessage::kWelcome:
        term_ = message.welcome().term();
        Converge(message.welcome().assignments());
        break;
      case v1::ControllerMessage::kAssignments:
        Converge(message.assignments());
        break;
      case v1::ControllerMessage::kUpload:
        Upload(message.upload());
        break;
      case v1::ControllerMessage::kHeartbeat: {
        if (script_.mute) {
          break;
        }
        v1::WorkerMessage heartbeat;
        heartbeat.mutable_heartbeat();
        Send(heartbeat);
        break;
      }
      case v1::ControllerMessage::kRefused:
        refused_ = message.refused().reason();
        break;
      default:
        break;
    }
  }
  {
    const std::lock_guard lock(mu_);
    stream_ = nullptr;
  }
  stream->Finish();
}

void SimulatedWorker::Send(v1::WorkerMessage message) {
  message.set_seq(++seq_);
  if (stream_ != nullptr) {
    stream_->Write(message);
  }
}

void SimulatedWorker::Converge(const v1::Assignments& assignments) {
  std::set<proto::AttemptKey> listed;
  for (const v1::Assignment& assignment : assignments.all()) {
    const proto::AttemptKey key = proto::KeyOf(assignment.id());
    listed.insert(key);
    if (assignment.desired() == v1::DESIRED_RUN && attempts_.count(key) == 0) {
      ++starts_[key.job];
      v1::AttemptStatus& status = attempts_[key];
      *status.mutable_id() = assignment.id();
      for (const v1::RankStart& rank : assignment.ranks()) {
        v1::RankStatus& out = *status.add_ranks();
        out.set_rank(rank.rank());
        out.set_phase(v1::RANK_PHASE_SPAWNED);
      }
    }
    const auto it = attempts_.find(key);
    if (it == attempts_.end()) {
      continue;
    }
    if (assignment.desired() == v1::DESIRED_RUN) {
      Advance(it->second);
    } else if (!it->second.ended()) {
      listed.erase(key);
    }
  }
  for (auto& [key, status] : attempts_) {
    if (listed.count(key) == 0 && !status.ended()) {
      for (v1::RankStatus& rank : *status.mutable_ranks()) {
        rank.set_exited(true);
        rank.set_stop_requested(true);
      }
      status.set_ended(true);
      v1::WorkerMessage message;
      *message.mutable_status() = status;
      Send(message);
    }
  }
  for (const v1::AttemptId& id : assignments.forget()) {
    attempts_.erase(proto::KeyOf(id));
  }
}

// From wherever it is as far as the script lets it, a message each.
void SimulatedWorker::Advance(v1::AttemptStatus& status) {
  const auto say = [&] {
    v1::WorkerMessage message;
    *message.mutable_status() = status;
    Send(message);
  };
  say();
  if (status.ended()) {
    return;
  }
  for (v1::RankStatus& rank : *status.mutable_ranks()) {
    rank.set_phase(v1::RANK_PHASE_READY);
    rank.mutable_ready()->set_program_digest("p");
    if (script_.stopped_for > 0) {
      rank.set_process_stopped(true);
      rank.mutable_since_progress()->set_seconds(script_.stopped_for);
    }
  }
  say();
  if (script_.hold && !released_) {
    return;
  }
  if (!SendReports(status)) {
    return;  // the connection broke: again when it is back
  }
  v1::WorkerMessage warning;
  *warning.mutable_checkpoint()->mutable_id() = status.id();
  warning.mutable_checkpoint()->set_number(1);
  warning.mutable_checkpoint()->mutable_warning()->set_problem(v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
  Send(warning);
  v1::WorkerMessage checkpoint;
  *checkpoint.mutable_checkpoint()->mutable_id() = status.id();
  checkpoint.mutable_checkpoint()->mutable_committed()->set_step(script_.steps);
  Send(checkpoint);
  for (v1::RankStatus& rank : *status.mutable_ranks()) {
    rank.set_phase(v1::RANK_PHASE_FINISHED);
    rank.set_step(script_.steps);
    rank.set_finished(true);
  }
  say();
  for (v1::RankStatus& rank : *status.mutable_ranks()) {
    rank.set_exited(true);
  }
  status.set_ended(true);
  say();
}

bool SimulatedWorker::SendReports(const v1::AttemptStatus& status) {
  bool rank0 = false;
  for (const v1::RankStatus& rank : status.ranks()) {
    rank0 = rank0 || rank.rank() == 0;
  }
  bool& reported = reported_[proto::KeyOf(status.id())];
  if (!rank0 || reported) {
    return true;
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(15));
  const auto stream = stub_->Reports(&context);
  v1::ReportBatch batch;
  *batch.mutable_id() = status.id();
  batch.set_seq(1);
  for (int64_t step = 1; step <= script_.steps; ++step) {
    v1::StepReport& report = *batch.add_reports();
    report.set_step(step);
    report.set_loss(1.0 / static_cast<double>(step));
    report.set_tokens(10);
  }
  stream->Write(batch);
  v1::ReportAck ack;
  reported = stream->Read(&ack) && ack.seq() == 1;
  context.TryCancel();
  stream->Finish();
  return reported;
}

void SimulatedWorker::Upload(const v1::UploadRequest& request) {
  grpc::ClientContext context;
  v1::UploadDone done;
  const auto writer = stub_->Upload(&context, &done);
  v1::UploadChunk chunk;
  chunk.set_upload(request.upload());
  if (request.has_profile()) {
    writer->Write(chunk);
    for (int i = 1; i <= script_.timelines; ++i) {
      chunk.mutable_profile()->mutable_timeline()->set_step(i);
      writer->Write(chunk);
    }
  } else {
    chunk.mutable_chunk()->set_data(script_.log_line);
    writer->Write(chunk);
  }
  writer->WritesDone();
  writer->Finish();
}

void SimulatedWorker::Release() {
  const std::lock_guard lock(mu_);
  released_ = true;
  for (auto& [key, status] : attempts_) {
    if (!status.ended()) {
      Advance(status);
    }
  }
}

std::map<std::string, int> SimulatedWorker::starts() const {
  const std::lock_guard lock(mu_);
  return starts_;
}

std::string SimulatedWorker::refused() const {
  const std::lock_guard lock(mu_);
  return refused_;
}

size_t SimulatedWorker::ended() const {
  const std::lock_guard lock(mu_);
  size_t ended = 0;
  for (const auto& [key, status] : attempts_) {
    ended += status.ended() ? 1 : 0;
  }
  return ended;
}

}  // namespace tandem::controller
