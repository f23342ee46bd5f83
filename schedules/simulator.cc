#include "schedules/simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

class Simulator {
 public:
  Simulator(const Outline& outline, const Program& program, const Workload& workload,
            const DeviceProfile& profile)
      : program_(program), profile_(profile), costs_(outline, program, workload, profile) {
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      queues_[static_cast<int>(program.instructions[i].stream)].push_back(i);
    }
    ended_.resize(program.instructions.size(), false);
    result_.timeline.program = program.name;
    result_.timeline.instructions.resize(program.instructions.size());
  }

  Simulation Run() {
    while (true) {
      while (StartWhatCan()) {
      }
      const double span = TimeToNextEnd();
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
      result_.alone_ns[s] = std::llround(alone_[s] * 1e9);
    }
    return std::move(result_);
  }

 private:
  struct Running {
    int instruction = -1;  // -1: the stream is idle
    double left = 0;       // seconds, alone
    double cores = 0;
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
    return std::all_of(waits.begin(), waits.end(), [this](int wait) { return ended_[wait]; });
  }

  void Start(int stream, int i) {
    const Cost cost = costs_.Of(program_.instructions[i]);
    Count(cost.source);
    result_.timeline.instructions[i].start_ns = Now();
    running_[stream] = {i, cost.seconds, cost.cores};
    alone_[stream] += cost.seconds;
    if (cost.seconds <= 0) {
      End(stream);
    }
  }

  void End(int stream) {
    const int i = running_[stream].instruction;
    result_.timeline.instructions[i].end_ns = Now();
    ended_[i] = true;
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
      if (running_[s].instruction >= 0) {
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
  double TimeToNextEnd() const {
    const std::array<double, kNumStreams> speeds = Speeds();
    double span = std::numeric_limits<double>::infinity();
    for (int s = 0; s < kNumStreams; ++s) {
      if (running_[s].instruction >= 0) {
        span = std::min(span, running_[s].left / speeds[s]);
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
      // What the subtraction leaves of the one that ends now is rounding.
      const bool ends = running.left / speeds[s] <= span * (1 + 1e-12);
      running.left -= span * speeds[s];
      if (ends) {
        End(s);
      }
    }
  }

  int64_t Now() const { return std::llround(seconds_ * 1e9); }

  const Program& program_;
  const DeviceProfile& profile_;
  const CostModel costs_;
  std::array<std::vector<int>, kNumStreams> queues_;  // instructions of each stream, in order
  std::array<size_t, kNumStreams> next_{};            // in the queue: the one that runs or starts next
  std::array<Running, kNumStreams> running_;
  std::array<double, kNumStreams> alone_{};  // seconds
  std::vector<bool> ended_;
  double seconds_ = 0;  // since the program's start
  Simulation result_;
};

}  // namespace

Simulation Simulate(const Outline& outline, const Program& program, const Workload& workload,
                    const DeviceProfile& profile) {
  return Simulator(outline, program, workload, profile).Run();
}

}  // namespace tandem::schedules
