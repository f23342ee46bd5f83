#include "tests/parity/run.h"

#include <ATen/core/Tensor.h>

#include <mutex>
#include <string_view>
#include <utility>

#include "comm/memory_store.h"
#include "comm/run_thread_ranks.h"
#include "comm/thread_communicator.h"
#include "device/arena.h"
#include "device/stream.h"
#include "fsdp/sharded_unit.h"
#include "link/shared_page.h"
#include "platform/files.h"
#include "trainer/rank.h"
#include "trainer/rank_memory.h"

namespace tandem::parity {
namespace {

// Notes what passes through.
class CountingCommunicator final : public comm::Communicator {
 public:
  CountingCommunicator(std::unique_ptr<comm::Communicator> inner, std::vector<Collective>& seen)
      : inner_(std::move(inner)), seen_(seen) {}

  const std::string& name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllGather(const at::Tensor& input, at::Tensor& output) override {
    seen_.push_back({.all_gather = true, .elements = input.numel()});
    inner_->AllGather(input, output);
  }
  void AllToAll(const at::Tensor& input, at::Tensor& output) override {
    seen_.push_back({.all_gather = false, .elements = input.numel()});
    inner_->AllToAll(input, output);
  }
  void Abort() override { inner_->Abort(); }
  void CheckPending() override { inner_->CheckPending(); }
  uint64_t num_collectives() const override { return inner_->num_collectives(); }
  uint64_t num_ended() const override { return inner_->num_ended(); }

 private:
  std::unique_ptr<comm::Communicator> inner_;
  std::vector<Collective>& seen_;
};

class Recorder final : public trainer::RankObserver {
 public:
  Recorder(JobRun& run, std::mutex& mu, const RunOptions& options) : run_(run), mu_(mu), options_(options) {}

  void OnReady(const trainer::RankReady& ready) override {
    const std::lock_guard<std::mutex> lock(mu_);
    run_.resumed_step = ready.resumed_step;
    run_.resumed_from = ready.resumed_from;
  }
  void OnItems(const std::vector<trainer::ReportedItem>&) override {}
  void OnReport(const trainer::StepSummary& summary) override {
    run_.steps.push_back(summary);
    if (options_.on_report) {
      options_.on_report(summary);
    }
  }
  void OnCheckpoint(int64_t step, const checkpoint::Saved&) override { run_.checkpoints.push_back(step); }
  void OnCheckpointWarning(const trainer::CheckpointWarning& warning) override {
    run_.warnings.push_back(warning);
  }
  void OnProfiledStep(uint64_t id, const trainer::RecordedRun& recorded, bool last) override {
    const std::lock_guard<std::mutex> lock(mu_);
    run_.profiled.push_back({.id = id, .timeline = recorded.timeline, .last = last});
  }
  void OnRequestsDone(const std::vector<uint64_t>& ids, const std::string& error) override {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!ids.empty()) {
      run_.request_error = error;
    }
    run_.answered.insert(run_.answered.end(), ids.begin(), ids.end());
  }

 private:
  JobRun& run_;
  std::mutex& mu_;
  const RunOptions& options_;
};

void Put(const std::string& name, const at::Tensor& on_device, int64_t begin, int64_t elements, JobRun& run) {
  const at::Tensor owned = on_device.cpu();
  const auto element_bytes = static_cast<int64_t>(owned.itemsize());
  std::string& array = run.arrays[name];
  array.resize(elements * element_bytes);
  if (owned.numel() > 0) {
    array.replace(begin * element_bytes, owned.nbytes(), static_cast<const char*>(owned.const_data_ptr()),
                  owned.nbytes());
  }
}

}  // namespace

JobRun RunJob(const plan::JobPlan& plan, const RunOptions& options) {
  const int ranks = plan.train.ranks;
  std::vector<std::vector<std::unique_ptr<comm::Communicator>>> communicators(ranks);
  JobRun run;
  const bool on_host = !options.make_backend;
  for (const char* name : {"dp_cp", "dp_cp_ag", "intra_dist_opt", "report"}) {
    if (!on_host && name != std::string("report")) continue;
    comm::WaitUntil wait_until;
    if (options.scheduler != nullptr &&
        std::string_view(name) != "report") {  // which has a thread of its own
      wait_until = [&](const std::function<bool()>& ready) { options.scheduler->WaitUntil(ready); };
    }
    auto group = comm::MakeThreadCommunicators(name, ranks, wait_until);
    group[0] = std::make_unique<CountingCommunicator>(std::move(group[0]), run.collectives[name]);
    for (int rank = 0; rank < ranks; ++rank) {
      communicators[rank].push_back(std::move(group[rank]));
    }
  }
  const trainer::Rendezvous rendezvous{.store = std::make_shared<comm::MemoryStore>(),
                                       .data_address = "127.0.0.1",
                                       .timeout = absl::Minutes(2)};
  std::vector<trainer::RequestBox> requests(ranks);
  if (options.with_requests) {
    options.with_requests(requests);
  }
  run.arena_peaks.resize(ranks);
  std::mutex mu;
  comm::RunThreadRanks(ranks, [&](int rank) {
    link::SharedPage page;
    Recorder recorder(run, mu, options);
    std::unique_ptr<trainer::Backend> backend;
    if (!on_host) {
      backend = options.make_backend(rank);
    } else if (options.scheduler != nullptr) {
      backend = trainer::MakeCpuBackend(options.scheduler->streams(rank));
    } else {
      backend = trainer::MakeCpuBackend();
    }
    std::vector<std::unique_ptr<comm::Communicator>> own = std::move(communicators[rank]);
    if (!on_host) {
      const auto join = [&](const char* name, comm::Communicator* clone_of) {
        own.push_back(backend->MakeCommunicator({.name = name, .prefix = name, .rank = rank, .size = ranks},
                                                rendezvous, clone_of));
        return own.back().get();
      };
      comm::Communicator* const reduce = join("dp_cp", nullptr);
      join("dp_cp_ag", reduce);
      join("intra_dist_opt", nullptr);
    }
    trainer::Rank trainer(
        plan,
        {.rank = rank,
         .job = options.job,
         .executor = {.poison = options.poison, .separate_instructions = options.scheduler != nullptr}},
        own, rank == 0 && options.files != nullptr ? *options.files : platform::SystemFiles(), requests[rank],
        page, *backend, recorder);
    const trainer::RankOutcome outcome = trainer.Run();
    const std::lock_guard<std::mutex> lock(mu);
    run.stopped = outcome == trainer::RankOutcome::kStopped;
    run.arena_peaks[rank] = trainer.memory().arena().peak();
    for (const fsdp::ShardedUnit& unit : trainer.memory().units()) {
      const int64_t begin = unit.owned().begin;
      const int64_t elements = unit.layout().elements;
      Put(unit.name() + "/weights", unit.weights(), begin, elements, run);
      Put(unit.name() + "/exp_avg", unit.exp_avg(), begin, elements, run);
      Put(unit.name() + "/exp_avg_sq", unit.exp_avg_sq(), begin, elements, run);
    }
  });
  return run;
}

}  // namespace tandem::parity
