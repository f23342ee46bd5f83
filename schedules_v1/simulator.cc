#include "schedules_v1/simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "platform/check.h"

namespace tandem::schedules_v1 {
namespace {

class Simulator {
 public:
  Simulator(const Outline& outline, const Program& program, const Workload& workload,
            const DeviceProfile& profile)
      : program_(program),
        profile_(profile),
        ranks_(workload.ranks),
        costs_(outline, program, workload, profile) {
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      queues_[static_cast<int>(program.instructions[i].stream)].push_back(i);
    }
    ended_at_.resize(program.instructions.size(), -1);
    free_since_.fill(-1);
    result_.timeline.program = program.name;
    result_.timeline.instructions.resize(program.instructions.size());
  }

  Simulation Run() {
    while (true) {
      while (StartWhatCan()) {
      }
      const double span = TimeToNextChange();
      if (std::isinf(span)) {
        break;
      }
      Advance(span);
    }
    for (int s = 0; s < kNumStreams; ++s) {
      TANDEM_CHECK(next_[s] == queues_[s].size(),
                   "the checker accepts the program: no stream waits for ever");
    }
    for (int s = 0; s < kNumStreams; ++s) {
      result_.alone_ns[s] = Nanoseconds(alone_[s]);
    }
    return std::move(result_);
  }

 private:
  struct Running {
    int instruction = -1;  // -1: the stream is idle
    double delay = 0;      // seconds until its work begins
    double left = 0;       // seconds of work, alone
    double cores = 0;

    bool works() const { return instruction >= 0 && delay <= 0; }
  };

  // Starts the next instruction of every idle stream that may start; whether there was one.
  bool StartWhatCan() {
    bool any = false;
    for (int s = 0; s < kNumStreams; ++s) {
      while (running_[s].instruction < 0 && next_[s] < queues_[s].size() && MayStart(queues_[s][next_[s]])) {
        Start(s, queues_[s][next_[s]]);
        any = true;
      }
    }
    return any;
  }

  bool MayStart(int i) const {
    const std::vector<int>& waits = program_.instructions[i].waits;
    return std::all_of(waits.begin(), waits.end(), [this](int wait) { return ended_at_[wait] >= 0; });
  }

  void Start(int stream, int i) {
    Cost cost = costs_.Of(program_.instructions[i]);
    cost.seconds = std::min(cost.seconds, static_cast<double>(kLongestNanoseconds));  // finite
    Count(cost.source);
    if (ranks_ > 1 && program_.instructions[i].communicator != Communicator::kNone) {
      const double work = cost.seconds;
      cost.seconds += profile_.skew_seconds;
      cost.cores = cost.seconds > 0 ? cost.cores * work / cost.seconds : 0;
    }
    running_[stream] = {i, Delay(stream, i, cost), cost.seconds, cost.cores};
    alone_[stream] += cost.seconds;
    if (running_[stream].delay <= 0) {
      Begin(stream);
    }
  }

  // From now, when the last that it depends on has ended.
  double Delay(int stream, int i, const Cost& cost) const {
    double ready = cost.source == CostSource::kNothing || free_since_[stream] < 0
                       ? 0
                       : free_since_[stream] + profile_.gap_seconds;
    for (const int wait : program_.instructions[i].waits) {
      ready = std::max(ready, ended_at_[wait] + profile_.wake_seconds);
    }
    return std::max(0.0, ready - seconds_);
  }

  void Begin(int stream) {
    result_.timeline.instructions[running_[stream].instruction].start_ns = Now();
    if (running_[stream].left <= 0) {
      End(stream);
    }
  }

  void End(int stream) {
    const int i = running_[stream].instruction;
    result_.timeline.instructions[i].end_ns = Now();
    ended_at_[i] = seconds_;
    free_since_[stream] = seconds_;
    running_[stream].instruction = -1;
    ++next_[stream];
  }

  void Count(CostSource source) {
    result_.measured += source == CostSource::kMeasured;
    result_.scaled += source == CostSource::kScaled;
    result_.estimated += source == CostSource::kEstimated;
  }

  // How fast each stream's instruction goes on, as a share of its speed alone.
  std::array<double, kNumStreams> Speeds() const {
    double wanted = 0;
    bool communicates = false;
    for (int s = 0; s < kNumStreams; ++s) {
      if (running_[s].works()) {
        wanted += running_[s].cores;
        communicates = communicates || s != static_cast<int>(StreamKind::kCompute);
      }
    }
    const double crowding = profile_.cores > 0 ? std::max(1.0, wanted / profile_.cores) : 1.0;
    std::array<double, kNumStreams> speeds{};
    for (int s = 0; s < kNumStreams; ++s) {
      const double share = std::min(1.0, running_[s].cores);
      speeds[s] = 1 / (1 - share + share * crowding);
    }
    if (communicates) {
      speeds[static_cast<int>(StreamKind::kCompute)] *= 1 - profile_.compute_slowdown;
    }
    return speeds;
  }

  // Infinite where nothing runs.
  double TimeToNextChange() const {
    const std::array<double, kNumStreams> speeds = Speeds();
    double span = std::numeric_limits<double>::infinity();
    for (int s = 0; s < kNumStreams; ++s) {
      if (running_[s].works()) {
        span = std::min(span, running_[s].left / speeds[s]);
      } else if (running_[s].instruction >= 0) {
        span = std::min(span, running_[s].delay);
      }
    }
    return span;
  }

  void Advance(double span) {
    const std::array<double, kNumStreams> speeds = Speeds();
    seconds_ += span;
    for (int s = 0; s < kNumStreams; ++s) {
      Running& running = running_[s];
      if (running.instruction < 0) {
        continue;
      }
      // What a subtraction leaves of what ends now is rounding.
      const double rounding = span * 1e-12;
      if (running.delay > 0) {
        running.delay = running.delay <= span + rounding ? 0 : running.delay - span;
        if (running.delay <= 0) {
          Begin(s);
        }
        continue;
      }
      const bool ends = running.left / speeds[s] <= span + rounding;
      running.left -= span * speeds[s];
      if (ends) {
        End(s);
      }
    }
  }

  int64_t Now() const { return Nanoseconds(seconds_); }

  static int64_t Nanoseconds(double seconds) {
    return std::llround(std::min(seconds * 1e9, static_cast<double>(kLongestNanoseconds)));
  }

  const Program& program_;
  const DeviceProfile& profile_;
  const int ranks_;
  const CostModel costs_;
  std::array<std::vector<int>, kNumStreams> queues_;  // instructions of each stream, in order
  std::array<size_t, kNumStreams> next_{};            // in the queue: the one that runs or starts next
  std::array<Running, kNumStreams> running_;
  std::array<double, kNumStreams> alone_{};     // seconds
  std::vector<double> ended_at_;                // seconds; -1: not yet
  std::array<double, kNumStreams> free_since_;  // seconds; -1: nothing ran on it
  double seconds_ = 0;                          // since the program's start
  Simulation result_;
};

}  // namespace

Simulation Simulate(const Outline& outline, const Program& program, const Workload& workload,
                    const DeviceProfile& profile) {
  return Simulator(outline, program, workload, profile).Run();
}

}  // namespace tandem::schedules_v1
