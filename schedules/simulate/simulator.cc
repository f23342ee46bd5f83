// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

constexpr int kRuns = 2;  // the first brings the second into the middle of a job

class Simulator {
 public:
  Simulator(const Outline& outline, const Program& program, const Workload& workload,
            const DeviceProfile& profile)
      : program_(program),
        profile_(profile),
        streams_(program.streams.size()),
        speeds_(program.streams.size()),
        started_at_(kRuns * program.instructions.size(), -1),
        ended_at_(kRuns * program.instructions.size(), -1) {
    for (size_t s = 0; s < streams_.size(); ++s) {
      streams_[s].computes = Computes(program, static_cast<StreamId>(s));
      streams_[s].communicates = Communicates(program, static_cast<StreamId>(s));
    }
    result_.timeline.program = program.name;
    result_.timeline.instructions.resize(program.instructions.size());
    const CostModel costs(outline, program, workload, profile);
    std::vector<double> undisturbed(streams_.size());
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      Cost cost = costs.Of(instruction);
      cost.seconds = std::min(cost.seconds, static_cast<double>(kLongestNanoseconds));  // finite
      Count(cost.source);
      if (WorkOf(outline, program, instruction, workload).ranks > 1) {
        const double work = cost.seconds;
        cost.seconds += profile.skew_seconds;
        cost.cores = cost.seconds > 0 ? cost.cores * work / cost.seconds : 0;
      }
      costs_.push_back(cost);
      undisturbed[instruction.stream] += cost.seconds;
      streams_[instruction.stream].queue.push_back(static_cast<int>(i));
      before_seam_ += !program.streams[instruction.stream].copies_host;
      issued_after_.push_back(last_host_wait_);
      last_host_wait_ = instruction.opcode == Opcode::kHostWait ? static_cast<int>(i) : last_host_wait_;
    }
    for (const double seconds : undisturbed) {
      result_.undisturbed_ns.push_back(Nanoseconds(seconds));
    }
  }

  Simulation Run() {
    if (before_seam_ == 0) {
      seam_ = 0;
    }
    while (true) {
      while (StartWhatCan()) {
      }
      const double span = TimeToNextChange();
      if (std::isinf(span)) {
        break;
      }
      Advance(span);
    }
    for (const StreamState& stream : streams_) {
      TANDEM_CHECK(stream.next == kRuns * stream.queue.size(),
                   "the check accepts the program: every instruction's waits end");
    }
    const size_t size = program_.instructions.size();
    for (size_t i = 0; i < size; ++i) {
      result_.timeline.instructions[i] = {
          .start_ns = Nanoseconds(started_at_[(kRuns - 1) * size + i] - seam_),
          .end_ns = Nanoseconds(ended_at_[(kRuns - 1) * size + i] - seam_)};
    }
    return std::move(result_);
  }

 private:
  struct StreamState {
    bool computes = false;
    bool communicates = false;
    std::vector<int> queue;  // its instructions, in order
    size_t next = 0;         // of all runs': the one that runs or starts next
    double free_since = -1;  // seconds; -1: nothing ran on it
    // What runs.
    bool busy = false;
    double delay = 0;  // seconds until its work begins
    double left = 0;   // seconds of work, undisturbed
    double cores = 0;

    bool works() const { return busy && delay <= 0; }
    bool done() const { return next == kRuns * queue.size(); }
    int run() const { return static_cast<int>(next / queue.size()); }
    int instruction() const { return queue[next % queue.size()]; }
  };

  // Starts the next instruction of every idle stream that may start; whether there was one.
  bool StartWhatCan() {
    bool any = false;
    for (StreamState& stream : streams_) {
      while (!stream.busy && !stream.done() && MayStart(stream)) {
        Start(stream);
        any = true;
      }
    }
    return any;
  }

  double EndedAt(int run, int instruction) const {
    return ended_at_[run * program_.instructions.size() + instruction];
  }

  bool WaitsForSeam(const StreamState& stream) const {
    return stream.run() > 0 && !program_.streams[&stream - streams_.data()].copies_host;
  }

  // When the host could issue it: after the host wait before it, of this run or the former; -1: not yet, 0:
  // at once.
  double IssuedAt(const StreamState& stream) const {
    const int i = issued_after_[stream.instruction()];
    return i >= 0                                     ? EndedAt(stream.run(), i)
           : stream.run() > 0 && last_host_wait_ >= 0 ? EndedAt(stream.run() - 1, last_host_wait_)
                                                      : 0;
  }

  bool MayStart(const StreamState& stream) const {
    const std::vector<Wait>& waits = program_.instructions[stream.instruction()].waits;
    return !(WaitsForSeam(stream) && seam_ < 0) && IssuedAt(stream) >= 0 &&
           std::all_of(waits.begin(), waits.end(),
                       [&](const Wait& wait) { return EndedAt(stream.run(), wait.instruction) >= 0; });
  }

  void Start(StreamState& stream) {
    const Cost& cost = costs_[stream.instruction()];
    stream.busy = true;
    stream.delay = Delay(stream, cost);
    stream.left = cost.seconds;
    stream.cores = cost.cores;
    if (stream.delay <= 0) {
      Begin(stream);
    }
  }

  // From now, when the last that it depends on has ended.
  double Delay(const StreamState& stream, const Cost& cost) const {
    double ready = cost.source == CostSource::kNothing || stream.free_since < 0
                       ? 0
                       : stream.free_since + profile_.gap_seconds;
    for (const Wait& wait : program_.instructions[stream.instruction()].waits) {
      ready = std::max(ready, EndedAt(stream.run(), wait.instruction) + profile_.wake_seconds);
    }
    if (WaitsForSeam(stream)) {
      ready = std::max(ready, seam_ + profile_.wake_seconds);
    }
    if (const double issued = IssuedAt(stream); issued > 0) {
      ready = std::max(ready, issued + profile_.wake_seconds);
    }
    return std::max(0.0, ready - seconds_);
  }

  void Begin(StreamState& stream) {
    started_at_[stream.run() * program_.instructions.size() + stream.instruction()] = seconds_;
    if (stream.left <= 0) {
      End(stream);
    }
  }

  void End(StreamState& stream) {
    const int i = stream.instruction();
    ended_at_[stream.run() * program_.instructions.size() + i] = seconds_;
    const bool before_seam = stream.run() == 0 && !program_.streams[&stream - streams_.data()].copies_host;
    stream.free_since = seconds_;
    stream.busy = false;
    ++stream.next;
    if (before_seam && --before_seam_ == 0) {
      seam_ = seconds_;
    }
  }

  void Count(CostSource source) {
    result_.measured += source == CostSource::kMeasured;
    result_.scaled += source == CostSource::kScaled;
    result_.estimated += source == CostSource::kEstimated;
  }

  // How fast each stream's instruction goes on, as a share of its speed undisturbed.
  void SetSpeeds() {
    double wanted = 0;
    int computing = 0;
    bool communicates = false;
    for (const StreamState& stream : streams_) {
      if (stream.works()) {
        wanted += stream.cores;
        computing += stream.computes;
        communicates = communicates || stream.communicates;
      }
    }
    const double crowding = profile_.cores > 0 ? std::max(1.0, wanted / profile_.cores) : 1.0;
    for (size_t s = 0; s < streams_.size(); ++s) {
      const double share = std::min(1.0, streams_[s].cores);
      speeds_[s] = 1 / (1 - share + share * crowding);
    }
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].computes && communicates) {
        speeds_[s] *= 1 - profile_.compute_slowdown;
      }
      if (streams_[s].computes && computing > 1 && profile_.cores == 0) {
        speeds_[s] /= computing;
      }
    }
  }

  // Infinite where nothing runs. Sets the speeds until then.
  double TimeToNextChange() {
    SetSpeeds();
    double span = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].works()) {
        span = std::min(span, streams_[s].left / speeds_[s]);
      } else if (streams_[s].busy) {
        span = std::min(span, streams_[s].delay);
      }
    }
    return span;
  }

  void Advance(double span) {
    seconds_ += span;
    for (size_t s = 0; s < streams_.size(); ++s) {
      StreamState& stream = streams_[s];
      if (!stream.busy) {
        continue;
      }
      // What a subtraction leaves of what ends now is rounding.
      const double rounding = span * 1e-12;
      if (stream.delay > 0) {
        stream.delay = stream.delay <= span + rounding ? 0 : stream.delay - span;
        if (stream.delay <= 0) {
          Begin(stream);
        }
        continue;
      }
      const bool ends = stream.left / speeds_[s] <= span + rounding;
      stream.left -= span * speeds_[s];
      if (ends) {
        End(stream);
      }
    }
  }

  static int64_t Nanoseconds(double seconds) {
    const auto longest = static_cast<double>(kLongestNanoseconds);
    return std::llround(std::clamp(seconds * 1e9, -longest, longest));
  }

  const Program& program_;
  const DeviceProfile& profile_;
  std::vector<Cost> costs_;  // per instruction
  std::vector<StreamState> streams_;
  std::vector<double> speeds_;
  std::vector<double> started_at_;  // seconds, by run and instruction; -1: not yet
  std::vector<double> ended_at_;
  std::vector<int> issued_after_;  // per instruction, the host wait before it; -1: none in its run
  int last_host_wait_ = -1;
  int before_seam_ = 0;  // instructions of the first run that the second waits for
  double seam_ = -1;     // seconds; -1: not yet
  double seconds_ = 0;   // since the first run's start
  Simulation result_;
};

}  // namespace

Simulation Simulate(const Outline& outline, const Program& program, const Workload& workload,
                    const DeviceProfile& profile) {
  return Simulator(outline, program, workload, profile).Run();
}

}  // namespace tandem::schedules
