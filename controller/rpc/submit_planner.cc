// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/submit_planner.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

constexpr char kClosed[] = "the controller is shutting down";

}  // namespace

SubmitPlanner::SubmitPlanner(Choose choose)
    : choose_(std::move(choose)), thread_([this] {
        // On Linux this sets the niceness of this thread alone; the threads that it starts inherit it.
        setpriority(PRIO_PROCESS, 0, 10);
        Run();
      }) {}

SubmitPlanner::~SubmitPlanner() {
  Close();
  thread_.join();
}

void SubmitPlanner::Close() {
  std::deque<Item> waiting;
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
    waiting.swap(waiting_);
  }
  for (const Item& item : waiting) {
    item.done(absl::UnavailableError(kClosed), item.resolved);
  }
}

absl::Status SubmitPlanner::Post(v1::JobSpec resolved, Done done) {
  const absl::MutexLock lock(&mu_);
  if (stopping_) {
    return absl::UnavailableError(kClosed);
  }
  if (waiting_.size() >= kMostWaiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("parallelism.fsdp.prefetch: auto: ", waiting_.size(),
                     " jobs wait for the simulation that chooses it; submit again later, or give a number"));
  }
  waiting_.push_back({std::move(resolved), std::move(done)});
  return absl::OkStatus();
}

void SubmitPlanner::Run() {
  while (true) {
    Item item;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &SubmitPlanner::HasWork));
      if (stopping_) {
        return;
      }
      item = std::move(waiting_.front());
      waiting_.pop_front();
    }
    absl::Status status = choose_(item.resolved);
    item.done(std::move(status), std::move(item.resolved));
  }
}

}  // namespace tandem::controller
