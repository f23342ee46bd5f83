// SPDX-License-Identifier: Apache-2.0
// Measures how long the compute stream is idle between two steps of a job on GPUs. Each rank has a GPU and is
// a thread:
//   tandem-bench-seam JOB.yaml WARMUP_STEPS [parts]
// The job must have no validation and no checkpoints. Events mark every piece of work on every stream, while
// steps run ahead as they always do. Prints one JSON object with medians over the steps of rank 0 after the
// warm-up:
//   "gap_us": from the end of the last piece of compute of one run to the start of the first one of the next
//   "of_it_reduce_us": the part of the gap in which the reduce stream worked (last reduction and norm)
//   "issue_ms": host time to issue a run: its work, waits and events, without the time in which the host was
//     far enough ahead and waited
//   "issue_cpu_ms": processor time of the issuing thread in issue_ms, without the sleep in which it waits for
//     a collective to start
// and, if ranks share experts:
//   "all_to_all_ms": how long a step's exchanges took, from when their last input was ready
//   "exposed_ms": the part of all_to_all_ms in which the compute stream was idle. An overlapped
//     schedule hides 1 - its exposed_ms / the all_to_all_ms of the sequential schedule, which runs nothing
//     beside exchanges.
//   "moving_ms": the part of all_to_all_ms in which every rank had reached the exchange. In the rest, rank 0
//     waited for another rank, whose experts had more tokens.
//
// "parts" adds, for each operation, how long it took in a step and how often it ran, by events around every
// call, which lengthen the step a little. The fold runs beside the compute, everything else within it; "rest"
// is the time of the compute stream's step that belongs to no operation. "issue_us" and "most_issue_us" are
// the median and the longest host time to issue a call. Over all calls of a step, "issue_ms" is the host time
// if each call took its operation's median, and "stalled_ms" is what calls that took over 100 us more than
// the median took beyond it, because the queue of launches was full.

#include <c10/core/Device.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/read_job.h"
#include "bench/result_line.h"
#include "bench/timed_operations.h"
#include "device/cuda/device.h"
#include "nlohmann/json.hpp"
#include "ops/operations.h"
#include "plan/job_plan.h"
#include "tests/device/forwarding_device.h"
#include "tests/parity/run.h"
#include "tests/trainer/forwarding_backend.h"
#include "trainer/bound_program.h"

namespace {

using tandem::bench::Median;
using tandem::device::TimeMark;
using Clock = std::chrono::steady_clock;

struct Piece {
  std::unique_ptr<TimeMark> start;
  std::unique_ptr<TimeMark> end;
  Clock::duration issued_before{};              // Marks::issuing when it was issued
  std::chrono::nanoseconds processor_before{};  // likewise
};

std::chrono::nanoseconds ProcessorTimeOfThread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Of one rank; written by its issuing thread.
struct Marks {
  std::map<std::string, std::vector<Piece>> streams;
  Clock::duration issuing{};             // host time in work, waits and events so far
  std::chrono::nanoseconds processor{};  // of it, processor time of the thread
  std::vector<double> launches_us;       // host time of each launch of a graph
  int64_t marked = 0;                    // times that the executor marked
  std::vector<tandem::bench::TimedCall> calls;

  // Calls `call` and counts its time.
  template <typename F>
  auto Issue(const F& call) {
    struct Timer {
      Marks& marks;
      const std::chrono::nanoseconds processor = ProcessorTimeOfThread();
      const Clock::time_point begin = Clock::now();
      ~Timer() {
        marks.issuing += Clock::now() - begin;
        marks.processor += ProcessorTimeOfThread() - processor;
      }
    } const timer{*this};
    return call();
  }
};

class TimedGraph final : public tandem::device::Graph {
 public:
  TimedGraph(std::unique_ptr<Graph> inner, Marks& marks) : inner_(std::move(inner)), marks_(marks) {}

  void Launch() override {
    const Clock::time_point begin = Clock::now();
    inner_->Launch();
    marks_.launches_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }

 private:
  const std::unique_ptr<Graph> inner_;
  Marks& marks_;
};

class MarkingStream final : public tandem::device::Stream {
 public:
  MarkingStream(std::unique_ptr<Stream> inner, tandem::device::Device& device, Marks& marks,
                const std::string& name)
      : inner_(std::move(inner)), device_(device), marks_(marks), pieces_(marks.streams[name]) {}

  void Enqueue(std::function<void()> work) override {
    inner_->Enqueue([this, work = std::move(work)] {
      Piece piece{.issued_before = marks_.issuing, .processor_before = marks_.processor};
      const int64_t marked = marks_.marked;
      piece.start = device_.MarkTime();
      marks_.Issue(work);
      piece.end = device_.MarkTime();
      if (marks_.marked == marked) {  // where a run begins or ends, the executor marks, and does no more
        pieces_.push_back(std::move(piece));
      }
    });
  }
  tandem::device::Event Record() override {
    return marks_.Issue([this] { return inner_->Record(); });
  }
  void Wait(const tandem::device::Event& event) override {
    marks_.Issue([&] { inner_->Wait(event); });
  }
  void Synchronize() override { inner_->Synchronize(); }
  void Synchronize(const tandem::device::Event& event) override { inner_->Synchronize(event); }

 private:
  const std::unique_ptr<Stream> inner_;
  tandem::device::Device& device_;
  Marks& marks_;
  std::vector<Piece>& pieces_;
};

class MarkingDevice final : public tandem::device::ForwardingDevice {
 public:
  MarkingDevice(Device& inner, Marks& marks) : ForwardingDevice(inner), marks_(marks) {}

  std::unique_ptr<tandem::device::Stream> MakeStream(const std::string& name,
                                                     tandem::device::StreamPriority priority,
                                                     tandem::device::StreamError error) override {
    return std::make_unique<MarkingStream>(inner_.MakeStream(name, priority, std::move(error)), inner_,
                                           marks_, name);
  }
  std::unique_ptr<tandem::device::Graph> Capture(std::function<void()> work) override {
    return std::make_unique<TimedGraph>(inner_.Capture(std::move(work)), marks_);
  }
  std::unique_ptr<TimeMark> MarkTime() override {
    ++marks_.marked;
    return inner_.MarkTime();
  }

 private:
  Marks& marks_;
};

class MarkingBackend final : public tandem::trainer::ForwardingBackend {
 public:
  MarkingBackend(int index, Marks& marks, bool parts)
      : ForwardingBackend(tandem::trainer::MakeCudaBackend(index)), device_(inner().device(), marks) {
    if (!parts) {
      return;
    }
    const tandem::bench::CallTimer timer(inner().device(), marks.calls);
    kernels_ = tandem::bench::MakeTimedKernels(inner().operations().kernels(), timer);
    operations_ = std::make_unique<tandem::ops::Operations>(*kernels_);
    shard_kernels_ = tandem::bench::MakeTimedShardKernels(inner().shard_kernels(), timer);
  }

  tandem::device::Device& device() override { return device_; }
  const tandem::ops::Operations& operations() const override {
    return operations_ != nullptr ? *operations_ : ForwardingBackend::operations();
  }
  const tandem::fsdp::ShardKernels& shard_kernels() const override {
    return shard_kernels_ != nullptr ? *shard_kernels_ : ForwardingBackend::shard_kernels();
  }

 private:
  MarkingDevice device_;
  std::unique_ptr<tandem::ops::DeviceKernels> kernels_;  // null, as the next two: the backend's
  std::unique_ptr<tandem::ops::Operations> operations_;
  std::unique_ptr<tandem::fsdp::ShardKernels> shard_kernels_;
};

// Pieces of work that the compute stream gets in one run of a program.
size_t ComputePieces(const tandem::schedules::Program& program) {
  const tandem::trainer::BoundProgram bound(program, [](const tandem::schedules::Instruction&, int) {
    return std::make_shared<const tandem::trainer::Call>();
  });
  return static_cast<size_t>(std::count_if(bound.segments().begin(), bound.segments().end(),
                                           [&](const tandem::trainer::Segment& segment) {
                                             return program.streams[segment.stream].name == "compute";
                                           }));
}

// Of the calls between two times, which are the begins of `runs` runs and of the one after them.
nlohmann::ordered_json Parts(const std::vector<tandem::bench::TimedCall>& calls, const TimeMark& origin,
                             int64_t from, int64_t to, size_t runs) {
  struct Sum {
    int64_t ns = 0;
    std::vector<double> issue_us;  // by call
  };
  std::map<std::string, Sum> sums;
  int64_t rest = to - from;
  for (const tandem::bench::TimedCall& call : calls) {
    const int64_t start = call.start->Since(origin);
    if (start < from || start >= to) {
      continue;
    }
    const int64_t ns = call.end->Since(origin) - start;
    Sum& sum = sums[call.name];
    sum.ns += ns;
    sum.issue_us.push_back(std::chrono::duration<double, std::micro>(call.issue).count());
    if (call.name != "Fold") {
      rest -= ns;
    }
  }
  const auto ms = [&](auto ns) { return static_cast<double>(ns) * 1e-6 / static_cast<double>(runs); };
  nlohmann::ordered_json parts;
  double issue_us = 0;
  double stalled_us = 0;
  for (const auto& [name, sum] : sums) {
    const double median = Median(sum.issue_us);
    for (const double us : sum.issue_us) {
      issue_us += median;
      stalled_us += us > median + 100 ? us - median : 0;
    }
    parts[name] = {{"ms", ms(sum.ns)},
                   {"calls", static_cast<double>(sum.issue_us.size()) / static_cast<double>(runs)},
                   {"issue_us", median},
                   {"most_issue_us", *std::max_element(sum.issue_us.begin(), sum.issue_us.end())}};
  }
  parts["rest"] = {{"ms", ms(rest)}, {"issue_ms", ms(issue_us * 1e3)}, {"stalled_ms", ms(stalled_us * 1e3)}};
  return parts;
}

// By exchange, in their order: how long the last rank that came to it took, as one clock has no other's
// times.
std::vector<int64_t> MovingTimes(const std::vector<Marks>& ranks) {
  std::vector<int64_t> shortest;
  for (const Marks& rank : ranks) {
    const auto exchanges = rank.streams.find("dispatch");
    if (exchanges == rank.streams.end()) {
      return {};
    }
    shortest.resize(exchanges->second.size(), std::numeric_limits<int64_t>::max());
    for (size_t i = 0; i < shortest.size(); ++i) {
      const Piece& piece = exchanges->second[i];
      shortest[i] = std::min(shortest[i], piece.end->Since(*piece.start));
    }
  }
  return shortest;
}

struct Interval {
  int64_t from = 0;
  int64_t to = 0;
};

// What of `work` lies between the two times, in its order.
std::vector<Interval> Within(std::span<const Piece> work, const TimeMark& origin, int64_t from, int64_t to) {
  std::vector<Interval> intervals;
  for (const Piece& piece : work) {
    const Interval here{std::max(from, piece.start->Since(origin)), std::min(to, piece.end->Since(origin))};
    if (here.from < here.to) {
      intervals.push_back(here);
    }
  }
  return intervals;
}

int64_t Length(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const Interval& each : intervals) {
    length += each.to - each.from;
  }
  return length;
}

// How much of `a` lies in some of `b`; both in order, without overlaps of their own.
int64_t Shared(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  int64_t shared = 0;
  for (const Interval& each : a) {
    for (const Interval& other : b) {
      shared += std::max<int64_t>(0, std::min(each.to, other.to) - std::max(each.from, other.from));
    }
  }
  return shared;
}

// Of rank 0, once the job is done: begin, train for each further step, update.
nlohmann::ordered_json Seams(const tandem::plan::JobPlan& plan, const std::vector<Marks>& ranks,
                             int64_t warmup) {
  const Marks& marks = ranks[0];
  const std::vector<Piece>& compute = marks.streams.at("compute");
  const std::vector<Piece>& reduce = marks.streams.at("reduce");
  const size_t begin = ComputePieces(plan.stage.begin);
  const size_t train = ComputePieces(plan.stage.train);
  const auto runs = static_cast<size_t>(plan.train.steps);
  const size_t expected = begin + (runs - 1) * train + ComputePieces(plan.stage.update);
  if (compute.size() != expected) {
    throw std::runtime_error(
        absl::StrCat(compute.size(), " pieces of compute in ", runs, " steps, the programs have ", expected));
  }
  const auto first_of = [&](size_t run) { return begin + (run - 1) * train; };  // run > 0
  const auto first_run = std::max<size_t>(1, static_cast<size_t>(warmup));
  const TimeMark& origin = *compute.front().start;
  std::vector<double> gaps;
  std::vector<double> reducing;
  std::vector<double> issuing;
  std::vector<double> processor;
  std::vector<double> exchanging;
  std::vector<double> exposed;
  std::vector<double> moving;
  const std::vector<int64_t> moving_of = MovingTimes(ranks);
  const auto dispatch = marks.streams.find("dispatch");
  for (size_t run = first_run; run + 1 < runs; ++run) {
    const Piece& first = compute[first_of(run)];
    const int64_t from = compute[first_of(run) - 1].end->Since(origin);
    const int64_t to = first.start->Since(origin);
    const int64_t busy = Length(Within(reduce, origin, from, to));
    gaps.push_back(static_cast<double>(to - from) * 1e-3);
    reducing.push_back(static_cast<double>(busy) * 1e-3);
    issuing.push_back(std::chrono::duration<double, std::milli>(compute[first_of(run + 1)].issued_before -
                                                                first.issued_before)
                          .count());
    processor.push_back(std::chrono::duration<double, std::milli>(
                            compute[first_of(run + 1)].processor_before - first.processor_before)
                            .count());
    if (dispatch != marks.streams.end()) {
      const int64_t end = compute[first_of(run + 1)].start->Since(origin);
      const std::vector<Interval> exchanges = Within(dispatch->second, origin, to, end);
      const int64_t all = Length(exchanges);
      exchanging.push_back(static_cast<double>(all) * 1e-6);
      int64_t moved = 0;
      for (size_t i = 0; i < moving_of.size(); ++i) {
        const int64_t start = dispatch->second[i].start->Since(origin);
        moved += start >= to && start < end ? moving_of[i] : 0;
      }
      moving.push_back(static_cast<double>(moved) * 1e-6);
      exposed.push_back(static_cast<double>(all - Shared(exchanges, Within(compute, origin, to, end))) *
                        1e-6);
    }
  }
  nlohmann::ordered_json result = {{"gap_us", Median(gaps)},
                                   {"of_it_reduce_us", Median(reducing)},
                                   {"issue_ms", Median(issuing)},
                                   {"issue_cpu_ms", Median(processor)},
                                   {"runs", gaps.size()}};
  if (!exchanging.empty()) {
    result["all_to_all_ms"] = Median(exchanging);
    result["moving_ms"] = Median(moving);
    result["exposed_ms"] = Median(exposed);
  }
  if (!marks.launches_us.empty()) {
    result["launch_us"] = Median(marks.launches_us);
  }
  if (!marks.calls.empty()) {
    result["parts"] = Parts(marks.calls, origin, compute[first_of(first_run)].start->Since(origin),
                            compute[first_of(runs - 1)].start->Since(origin), runs - 1 - first_run);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const bool parts = argc == 4 && argv[3] == std::string_view("parts");
  if (argc != 3 && !parts) {
    std::fprintf(stderr, "usage: tandem-bench-seam JOB.yaml WARMUP_STEPS [parts]\n");
    return 2;
  }
  tandem::v1::JobSpec job = tandem::bench::ReadJobOrExit(argv[1]);
  job.mutable_resources()->set_device(tandem::v1::DEVICE_CUDA);
  const tandem::plan::JobPlan plan = tandem::plan::MakeJobPlan(job);
  if (plan.train.validate_every_steps > 0 || !plan.train.checkpoint.directory.empty()) {
    std::fprintf(
        stderr,
        "%s: validations and checkpoints stand between two steps; set training.validate_every_steps: 0 "
        "and omit checkpoint.directory\n",
        argv[1]);
    return 64;
  }
  const int64_t warmup = std::atoll(argv[2]);
  std::vector<Marks> marks(plan.topology.world);
  nlohmann::ordered_json result = {{"system", "tandem"},
                                   {"arena_gib", plan.stage.arena_bytes / 1073741824.0}};
  const tandem::parity::RunOptions options{
      .make_backend = [&](int rank) { return std::make_unique<MarkingBackend>(rank, marks[rank], parts); },
      .arrays = false,
      .at_end = [&] { result.update(Seams(plan, marks, warmup)); }};  // while the devices are there
  tandem::parity::JobRun run;
  try {
    run = tandem::parity::RunJob(plan, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::vector<double> seconds;
  for (size_t i = static_cast<size_t>(warmup); i < run.steps.size(); ++i) {
    seconds.push_back(run.steps[i].seconds());
  }
  result["step_ms"] = Median(seconds) * 1e3;
  result["loss"] = run.steps.back().loss();
  const std::string machine = tandem::device::MakeCudaDevice(0)->name();
  std::printf("%s\n", tandem::bench::ResultLine(std::move(result), machine).c_str());
  return 0;
}
