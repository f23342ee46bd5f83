// How long the compute stream stands still between two steps of a job on GPUs, a rank a GPU, ranks as
// threads:
//   tandem-bench-seam JOB.yaml WARMUP_STEPS
// Prints one JSON object. Every piece of work on every stream is marked by events, while steps run ahead as
// they always do. "gap_us": from the end of the last piece of compute of one run to the start of the first
// one of the next, of each step the longest; "of_it_reduce_us": how much of that the reduce stream worked
// (the last reduction and the norm); "issue_ms": host time from the first to the last piece of a run. Medians
// over the steps after the warm-up, of rank 0.

#include <c10/core/Device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "jobspec/jobspec.h"
#include "nlohmann/json.hpp"
#include "ops/operations.h"
#include "plan/job_plan.h"
#include "tests/parity/run.h"
#include "trainer/backend.h"

namespace {

using tandem::device::TimeMark;
using Clock = std::chrono::steady_clock;

struct Piece {
  std::unique_ptr<TimeMark> start;
  std::unique_ptr<TimeMark> end;
  Clock::time_point issued;
};

// Of one rank; written by its issuing thread.
struct Marks {
  std::map<std::string, std::vector<Piece>> streams;
};

class MarkingStream final : public tandem::device::Stream {
 public:
  MarkingStream(std::unique_ptr<Stream> inner, tandem::device::Device& device, std::vector<Piece>& pieces)
      : inner_(std::move(inner)), device_(device), pieces_(pieces) {}

  void Enqueue(std::function<void()> work) override {
    inner_->Enqueue([this, work = std::move(work)] {
      Piece& piece = pieces_.emplace_back();
      piece.issued = Clock::now();
      piece.start = device_.MarkTime();
      work();
      piece.end = device_.MarkTime();
    });
  }
  tandem::device::Event Record() override { return inner_->Record(); }
  void Wait(const tandem::device::Event& event) override { inner_->Wait(event); }
  void Synchronize() override { inner_->Synchronize(); }
  void Synchronize(const tandem::device::Event& event) override { inner_->Synchronize(event); }

 private:
  const std::unique_ptr<Stream> inner_;
  tandem::device::Device& device_;
  std::vector<Piece>& pieces_;
};

class MarkingDevice final : public tandem::device::Device {
 public:
  MarkingDevice(Device& inner, Marks& marks) : inner_(inner), marks_(marks) {}

  c10::Device torch_device() const override { return inner_.torch_device(); }
  std::unique_ptr<tandem::device::Stream> MakeStream(const std::string& name,
                                                     tandem::device::StreamError error) override {
    return std::make_unique<MarkingStream>(inner_.MakeStream(name, std::move(error)), inner_,
                                           marks_.streams[name]);
  }
  std::unique_ptr<tandem::device::Region> Reserve(int64_t bytes) override { return inner_.Reserve(bytes); }
  std::unique_ptr<tandem::device::Region> ReserveHost(int64_t bytes) override {
    return inner_.ReserveHost(bytes);
  }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    inner_.CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    inner_.CopyToHost(host, device, bytes);
  }
  void Fill(void* begin, uint8_t byte, int64_t bytes) override { inner_.Fill(begin, byte, bytes); }
  std::unique_ptr<TimeMark> MarkTime() override { return inner_.MarkTime(); }
  void Synchronize() override { inner_.Synchronize(); }

 private:
  Device& inner_;
  Marks& marks_;
};

class MarkingBackend final : public tandem::trainer::Backend {
 public:
  MarkingBackend(int index, Marks& marks)
      : inner_(tandem::trainer::MakeCudaBackend(index)), device_(inner_->device(), marks) {}

  tandem::device::Device& device() override { return device_; }
  const tandem::ops::Operations& operations() const override { return inner_->operations(); }
  const tandem::fsdp::ShardKernels& shard_kernels() const override { return inner_->shard_kernels(); }
  std::unique_ptr<tandem::comm::CommunicatorFactory> MakeCommunicatorFactory(
      tandem::comm::Rendezvous rendezvous) override {
    return inner_->MakeCommunicatorFactory(std::move(rendezvous));
  }
  bool needs_watchdog() const override { return inner_->needs_watchdog(); }

 private:
  const std::unique_ptr<tandem::trainer::Backend> inner_;
  MarkingDevice device_;
};

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tandem-bench-seam JOB.yaml WARMUP_STEPS\n");
    return 2;
  }
  const tandem::jobspec::ReadResult read = tandem::jobspec::ReadFile(argv[1]);
  auto violations = read.violations;
  if (violations.empty()) {
    violations = tandem::jobspec::Validate(read.spec);
  }
  if (!violations.empty()) {
    std::fprintf(stderr, "%s\n", tandem::jobspec::ToText(violations).c_str());
    return 64;
  }
  const tandem::plan::JobPlan plan = tandem::plan::MakeJobPlan(tandem::jobspec::Resolve(read.spec));
  std::vector<Marks> marks(plan.train.ranks);
  nlohmann::ordered_json result = {{"system", "tandem"},
                                   {"arena_gib", plan.stage.arena_bytes / 1073741824.0}};
  const tandem::parity::RunOptions options{
      .make_backend = [&](int rank) { return std::make_unique<MarkingBackend>(rank, marks[rank]); },
      .arrays = false,
      .at_end = [&] {  // while the devices are there
        const std::vector<Piece>& compute = marks[0].streams["compute"];
        const std::vector<Piece>& reduce = marks[0].streams["reduce"];
        const TimeMark& origin = *compute.front().start;
        // The gaps of compute, longest first: one between each two steps, if nothing else stands still.
        std::vector<std::pair<double, size_t>> gaps;
        for (size_t i = 1; i < compute.size(); ++i) {
          gaps.emplace_back(static_cast<double>(compute[i].start->Since(*compute[i - 1].end)) * 1e-3, i);
        }
        // A run's first piece of compute is issued after its inputs; runs are told apart by these.
        const std::vector<Piece>& inputs = marks[0].streams["host-to-device"];
        const size_t per_run =
            (inputs.size() - 1) / static_cast<size_t>(plan.train.steps);  // the last is an update
        std::vector<double> seams;
        std::vector<double> reducing;
        std::vector<double> issue;
        for (size_t run = static_cast<size_t>(std::atoll(argv[2]));
             run + 1 < static_cast<size_t>(plan.train.steps); ++run) {
          const Clock::time_point begin = inputs[run * per_run].issued;
          const auto first = std::find_if(compute.begin(), compute.end(),
                                          [&](const Piece& piece) { return piece.issued >= begin; });
          const auto at = static_cast<size_t>(first - compute.begin());
          if (at == 0 || at >= compute.size()) {
            continue;
          }
          const double gap = gaps[at - 1].first;
          const int64_t from = compute[at - 1].end->Since(origin);
          const int64_t to = compute[at].start->Since(origin);
          double busy = 0;
          for (const Piece& piece : reduce) {
            const int64_t start = std::max(from, piece.start->Since(origin));
            const int64_t end = std::min(to, piece.end->Since(origin));
            busy += start < end ? static_cast<double>(end - start) * 1e-3 : 0;
          }
          seams.push_back(gap);
          reducing.push_back(busy);
          const Clock::time_point next = inputs[(run + 1) * per_run].issued;
          const auto last = std::find_if(compute.begin(), compute.end(),
                                         [&](const Piece& piece) { return piece.issued >= next; });
          issue.push_back(std::chrono::duration<double, std::milli>((last - 1)->issued - begin).count());
        }
        result["gap_us"] = Median(seams);
        result["of_it_reduce_us"] = Median(reducing);
        result["issue_ms"] = Median(issue);
        result["runs"] = seams.size();
      }};
  const tandem::parity::JobRun run = tandem::parity::RunJob(plan, options);
  std::vector<double> seconds;
  for (size_t i = static_cast<size_t>(std::atoll(argv[2])); i < run.steps.size(); ++i) {
    seconds.push_back(run.steps[i].seconds);
  }
  result["step_ms"] = Median(seconds) * 1e3;
  std::printf("%s\n", result.dump().c_str());
  return 0;
}
