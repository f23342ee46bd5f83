// SPDX-License-Identifier: Apache-2.0
#include "trainer/progress.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "platform/log.h"

namespace tandem::trainer {
namespace {

int64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Progress::Progress(link::SharedPage& page, bool looks) : page_(page) {
  if (looks) {
    thread_ = std::thread([this] { Run(); });
  }
}

Progress::~Progress() {
  if (thread_.joinable()) {
    {
      const absl::MutexLock lock(&mu_);
      ending_ = true;
    }
    ending_changed_.NotifyAll();
    thread_.join();
  }
}

void Progress::Begins(int64_t step) { page_.step.store(step, std::memory_order_relaxed); }

void Progress::Moved() {
  // Several streams' threads may be between the clock and the page.
  const int64_t now = MonotonicNanoseconds();
  int64_t latest = page_.progress_monotonic_ns.load(std::memory_order_relaxed);
  while (latest < now &&
         !page_.progress_monotonic_ns.compare_exchange_weak(latest, now, std::memory_order_relaxed)) {
  }
}

void Progress::Finished(const Position& position) {
  Moved();
  page_.step.store(position.step, std::memory_order_relaxed);
  page_.instruction.store(position.instruction, std::memory_order_relaxed);
}

void Progress::Issued(const device::Stream* stream, const Position& position, const device::Event& end) {
  const absl::MutexLock lock(&mu_);
  queues_[stream].issued.push_back({position, end});
}

void Progress::Look() {
  const absl::MutexLock lock(&mu_);
  Position newest;
  try {
    for (auto& [stream, queue] : queues_) {
      while (queue.next < queue.issued.size() && queue.issued[queue.next].end.IsReached()) {
        Issue& issue = queue.issued[queue.next++];
        issue.end = {};
        if (std::pair(newest.run, newest.instruction) <
            std::pair(issue.position.run, issue.position.instruction)) {
          newest = issue.position;
        }
      }
      if (2 * queue.next > queue.issued.size()) {  // keeps its memory
        queue.issued.erase(queue.issued.begin(),
                           queue.issued.begin() + static_cast<std::ptrdiff_t>(queue.next));
        queue.next = 0;
      }
    }
  } catch (const device::DeviceError&) {  // a thread that waits for a stream gets it too
  }
  // Where two streams move between two looks at them, one may be seen in the next run already.
  if (newest.run >= 0 && newest.run >= run_) {
    run_ = newest.run;
    Finished(newest);
  }
}

void Progress::Run() {
  pthread_setname_np(pthread_self(), "progress");
  while (true) {
    {
      const absl::MutexLock lock(&mu_);
      if (ending_changed_.AwaitFor(mu_, kPeriod,
                                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ending_; })) {
        return;
      }
    }
    Look();
  }
}

ShownProgress::ShownProgress(bool logs, std::string what, std::string unit, std::function<void()> moved)
    : logs_(logs), what_(std::move(what)), unit_(std::move(unit)), moved_(std::move(moved)) {}

void ShownProgress::operator()(const checkpoint::WorkProgress& progress) {
  moved_();
  if (progress.path != path_) {
    path_ = progress.path;
    tenth_ = 0;
  }
  const auto tenth = static_cast<int64_t>(10.0 * static_cast<double>(progress.done) /
                                          static_cast<double>(std::max<int64_t>(1, progress.total)));
  if (!logs_ || tenth == tenth_ || (tenth_ == 0 && progress.done == progress.total)) {
    return;
  }
  tenth_ = tenth;
  platform::Log(platform::LogLevel::kInfo, what_,
                {{"path", progress.path},
                 {"percent", absl::StrCat(10 * tenth)},
                 {unit_, absl::StrCat(progress.total)}});
}

}  // namespace tandem::trainer
