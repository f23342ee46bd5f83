// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/run.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/communicators.h"
#include "device/device.h"
#include "device/memory.h"
#include "fsdp/unit_shard.h"
#include "link/shared_page.h"
#include "model/node.h"
#include "plan/recorded_steps.h"
#include "platform/files.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/comm/thread_groups.h"
#include "tests/device/tensors.h"
#include "trainer/memberships.h"
#include "trainer/rank.h"
#include "trainer/stage_memory.h"

namespace tandem::parity {
namespace {

// The collectives of a group, which has a communicator a purpose, each on a thread of its own.
class Counter {
 public:
  explicit Counter(std::vector<Collective>& seen) : seen_(seen) {}

  void Add(const char* operation, int64_t bytes) {
    const std::lock_guard lock(mu_);
    seen_.push_back({.operation = operation, .bytes = bytes});
  }

 private:
  std::mutex mu_;
  std::vector<Collective>& seen_;
};

// Notes what passes through.
class CountingCommunicator final : public comm::ForwardingCommunicator {
 public:
  CountingCommunicator(std::unique_ptr<comm::Communicator> inner, std::shared_ptr<Counter> counter)
      : ForwardingCommunicator(std::move(inner)), counter_(std::move(counter)) {}

  void AllGather(comm::Memory input, comm::Memory output) override {
    counter_->Add("AllGather", input.bytes);
    inner_->AllGather(input, output);
  }
  void AllToAll(comm::Memory input, comm::Memory output) override {
    counter_->Add("AllToAll", input.bytes);
    inner_->AllToAll(input, output);
  }
  void AllToAllRows(comm::Memory input, const std::vector<int64_t>& sends, comm::Memory output,
                    const std::vector<int64_t>& receives, int64_t row_bytes) override {
    const int64_t rows = std::accumulate(sends.begin(), sends.end(), int64_t{0});
    counter_->Add("AllToAllRows", rows * row_bytes);
    inner_->AllToAllRows(input, sends, output, receives, row_bytes);
  }
  void Gather(comm::Memory input, comm::Memory output) override {
    counter_->Add("Gather", input.bytes);
    inner_->Gather(input, output);
  }
  void Send(comm::Memory input) override {
    counter_->Add("Send", input.bytes);
    inner_->Send(input);
  }
  void Receive(comm::Memory output) override {
    counter_->Add("Receive", output.bytes);
    inner_->Receive(output);
  }

 private:
  std::shared_ptr<Counter> counter_;
};

// Counts the collectives of one rank, by group.
class CountingFactory final : public comm::CommunicatorFactory {
 public:
  CountingFactory(std::unique_ptr<comm::CommunicatorFactory> inner,
                  std::map<std::string, std::vector<Collective>>& seen)
      : inner_(std::move(inner)), seen_(seen) {}

  std::unique_ptr<comm::Communicator> Make(const comm::Membership& membership,
                                           comm::Communicator* live) override {
    std::shared_ptr<Counter>& counter = counters_[membership.group];
    if (counter == nullptr) {
      counter = std::make_shared<Counter>(seen_[membership.group]);
    }
    return std::make_unique<CountingCommunicator>(inner_->Make(membership, live), counter);
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return inner_->Reserve(device, bytes);
  }

 private:
  const std::unique_ptr<comm::CommunicatorFactory> inner_;
  std::map<std::string, std::vector<Collective>>& seen_;
  std::map<std::string, std::shared_ptr<Counter>> counters_;
};

// Keeps what a rank sends.
void Record(const v1::FromTrainer& message, const RunOptions& options, std::mutex& mu, JobRun& run) {
  switch (message.item_case()) {
    case v1::FromTrainer::kReady: {
      const std::lock_guard<std::mutex> lock(mu);
      run.resumed_step = message.ready().resumed_step();
      run.resumed_from = message.ready().resumed_from();
      break;
    }
    case v1::FromTrainer::kReport: {
      const v1::StepReport& report = message.report();
      if (report.step() == 0) {
        run.start = report;
        break;
      }
      if (options.keep_steps) {
        run.steps.push_back(report);
      }
      if (options.on_report) {
        options.on_report(report);
      }
      break;
    }
    case v1::FromTrainer::kCheckpoint: {
      const std::lock_guard<std::mutex> lock(mu);
      run.checkpoints.push_back(message.checkpoint().step());
      break;
    }
    case v1::FromTrainer::kCheckpointWarning: {
      const std::lock_guard<std::mutex> lock(mu);
      run.warnings.push_back(message.checkpoint_warning());
      break;
    }
    case v1::FromTrainer::kTrainingWarning:
      if (message.training_warning().is_data()) {
        break;
      }
      (message.training_warning().is_spike()        ? run.spikes
       : message.training_warning().is_loss_spike() ? run.loss_spikes
                                                    : run.nonfinite)
          .emplace_back(message.training_warning().step(), message.training_warning().message());
      break;
    case v1::FromTrainer::kProfiled: {
      const std::lock_guard<std::mutex> lock(mu);
      run.profiled.push_back({.id = message.profiled().id(),
                              .timeline = plan::ToTimeline(message.profiled().timeline()),
                              .last = message.profiled().last()});
      break;
    }
    case v1::FromTrainer::kRequestDone: {
      const std::lock_guard<std::mutex> lock(mu);
      run.request_error = message.request_error();
      run.answered.push_back(message.request_done());
      break;
    }
    default:
      break;
  }
}

// What a rank holds of an array of `elements`, which others may hold as well.
void Put(const std::string& name, const at::Tensor& on_device, int64_t begin, int64_t elements, JobRun& run) {
  const at::Tensor held = on_device.cpu();
  const auto element_bytes = static_cast<int64_t>(held.itemsize());
  std::string& array = run.arrays[name];
  std::vector<bool>& known = run.known[name];
  array.resize(elements * element_bytes);
  known.resize(elements);
  const char* const bytes = static_cast<const char*>(held.const_data_ptr());
  for (int64_t i = 0; i < held.numel(); ++i) {
    char* const at = array.data() + (begin + i) * element_bytes;
    if (known[begin + i] && std::memcmp(at, bytes + i * element_bytes, element_bytes) != 0) {
      run.unequal_replicas.insert(name);
    }
    std::memcpy(at, bytes + i * element_bytes, element_bytes);
    known[begin + i] = true;
  }
}

// Whether that state is the counter of another, which zeros it.
bool Counts(const schedules::Outline& outline, int state) {
  return std::any_of(outline.states.begin(), outline.states.end(),
                     [&](const schedules::NodeState& other) { return other.counter == state; });
}

}  // namespace

std::optional<double> ValidationLossOf(const v1::StepReport& step) {
  const auto found = step.scalars().find("validation_loss");
  return found == step.scalars().end() ? std::nullopt : std::optional(found->second);
}

JobRun RunJob(const plan::JobPlan& plan, const RunOptions& options) {
  return RunStages(absl::MakeConstSpan(&plan, 1), options);
}

JobRun RunStages(absl::Span<const plan::JobPlan> stages, const RunOptions& options) {
  const int ranks = stages.front().topology.world;
  JobRun run;
  comm::WaitUntil wait_until;
  if (options.scheduler != nullptr) {
    wait_until = [&](const std::function<bool()>& ready) { options.scheduler->WaitUntil(ready); };
  }
  comm::ThreadGroups groups(wait_until);
  comm::ThreadGroups report_groups;  // the reporter has a thread of its own
  comm::ThreadGroups save_groups;    // and so has what saves
  const comm::Rendezvous rendezvous{.store = std::make_shared<comm::MemoryStore>(),
                                    .data_address = "127.0.0.1",
                                    .timeout = absl::Minutes(2)};
  std::vector<trainer::RequestBox> requests(ranks);
  if (options.with_requests) {
    options.with_requests(requests);
  }
  run.arena_bytes.resize(ranks);
  std::mutex mu;
  comm::RunThreadRanks(ranks, [&](int rank) {
    const plan::JobPlan& plan = stages[plan::TopologyOf(stages.front(), rank).stage.index];
    link::SharedPage page;
    const bool on_host = !options.make_backend;
    std::unique_ptr<trainer::Backend> backend;
    if (!on_host) {
      backend = options.make_backend(rank);
    } else if (options.scheduler != nullptr) {
      backend = trainer::MakeCpuBackend(options.scheduler->streams(rank));
    } else {
      backend = trainer::MakeCpuBackend();
    }
    std::unique_ptr<comm::CommunicatorFactory> factory;
    if (on_host) {
      factory = groups.MakeFactory();
      if (rank == 0) {
        factory = std::make_unique<CountingFactory>(std::move(factory), run.collectives);
      }
    } else {
      factory = backend->MakeCommunicatorFactory(rendezvous);
    }
    const std::vector<comm::Membership> memberships =
        trainer::MembershipsOf(plan.groups, rank, plan.group_options);
    comm::Communicators communicators(*factory, memberships, trainer::CommunicatorUsesOf(plan));
    const std::unique_ptr<comm::Communicator> report = report_groups.MakeFactory()->Make(
        {.group = "report", .prefix = "report/", .rank = rank, .size = ranks}, nullptr);
    const std::unique_ptr<comm::Communicator> save = save_groups.MakeFactory()->Make(
        {.group = "save", .prefix = "save/", .rank = rank, .size = ranks}, nullptr);
    trainer::Rank trainer(
        plan,
        {.rank = rank,
         .job = options.job,
         .executor = {.fill_with_nan = options.fill_with_nan,
                      .separate_instructions = options.scheduler != nullptr},
         .clock = rank == 0 && options.clock != nullptr ? options.clock : &platform::SteadyClock(),
         .make_nodes = options.make_nodes},
        {communicators, *factory, *report, save.get()},
        rank == 0 && options.files != nullptr ? *options.files : platform::SystemFiles(), requests[rank],
        page, *backend, [&](const v1::FromTrainer& message) { Record(message, options, mu, run); });
    const trainer::RankOutcome outcome = trainer.Run();
    const std::lock_guard<std::mutex> lock(mu);
    run.stopped = outcome == trainer::RankOutcome::kStopped;
    if (rank == 0 && options.at_end) {
      options.at_end();
    }
    run.arena_bytes[rank] = trainer.arena().bytes;
    for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
      if (buffer.kind == schedules::BufferKind::kNodeState &&
          plan.outline.states[buffer.subject].counter >= 0) {
        const int64_t bytes = model::ElementBytes(model::MainType(plan.precision.common.compute));
        Put(buffer.name,
            device::FlatTensorIn(backend->device(),
                                 {trainer.arena().begin + buffer.address, buffer.bytes.bound},
                                 bytes == 8 ? at::kDouble : at::kFloat),
            0, buffer.bytes.bound / bytes, run);
      } else if (buffer.kind == schedules::BufferKind::kNodeState && !Counts(plan.outline, buffer.subject)) {
        const at::Tensor state =
            device::FlatTensorIn(backend->device(),
                                 {trainer.arena().begin + buffer.address, buffer.bytes.bound}, at::kByte)
                .cpu();
        run.node_states[absl::StrCat("rank ", rank, " ", buffer.name)] =
            std::string(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
      }
    }
    const std::vector<fsdp::ClassLayouts> whole = plan::WholeLayouts(plan);
    for (size_t u = 0; options.arrays && u < trainer.units().size(); ++u) {
      const fsdp::UnitShard& unit = trainer.units()[u];
      const std::vector<fsdp::StateMemory> states = unit.ByClass(trainer.StateOf(u));
      for (size_t c = 0; c < states.size(); ++c) {
        const fsdp::ClassShard& of_class = unit.classes()[c];
        const fsdp::Layout& layout = whole[u].at(c);
        const std::string name = absl::StrCat(unit.name(), c > 0 ? absl::StrCat("/class ", c) : "");
        const device::ElementKind main = model::ElementKindOf(plan.precision.common.main);
        const auto put = [&](const char* what, device::Memory memory, device::ElementKind type) {
          if (memory.begin == nullptr) {
            return;  // a frozen unit has no moments, one that computes in the main type publishes nothing
          }
          const at::Tensor shard =
              device::FlatTensorIn(backend->device(), memory, type).to(device::ScalarTypeOf(main));
          for (const fsdp::Piece& piece : of_class.pieces()) {  // gaps between them hold anything
            const fsdp::Parameter& own = of_class.layout().parameters[piece.parameter];
            const auto in_whole =
                std::find_if(layout.parameters.begin(), layout.parameters.end(),
                             [&](const fsdp::Parameter& parameter) { return parameter.name == own.name; });
            Put(name + "/" + what,
                shard.narrow(0, piece.range.begin - of_class.held().begin, piece.range.size()),
                in_whole->range.begin + piece.range.begin - own.range.begin, layout.elements, run);
          }
        };
        put("weights", states[c].weights, of_class.weights_type());
        put("published", states[c].published, of_class.types().compute);
        put("exp_avg", states[c].exp_avg, main);
        put("exp_avg_sq", states[c].exp_avg_sq, main);
      }
    }
  });
  return run;
}

}  // namespace tandem::parity
