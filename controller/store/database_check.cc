// SPDX-License-Identifier: Apache-2.0
#include "controller/store/database_check.h"

#include <utility>

#include "platform/clock.h"
#include "platform/status_macros.h"

namespace tandem::controller {

absl::StatusOr<std::unique_ptr<DatabaseCheck>> DatabaseCheck::Start(const std::string& path,
                                                                    std::function<void(absl::Status)> done) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::OpenReader(path));
  return std::unique_ptr<DatabaseCheck>(new DatabaseCheck(std::move(db), std::move(done)));
}

DatabaseCheck::DatabaseCheck(std::unique_ptr<Database> db, std::function<void(absl::Status)> done)
    : db_(std::move(db)), done_(std::move(done)), thread_([this] { Run(); }) {}

DatabaseCheck::~DatabaseCheck() {
  stopping_ = true;
  // What is interrupted before it has begun goes on.
  while (!Await(absl::Milliseconds(10))) {
    db_->Interrupt();
  }
  thread_.join();
}

bool DatabaseCheck::Await(absl::Duration patience) {
  const platform::Clock& clock = platform::SteadyClock();
  const absl::Time deadline = clock.Now() + patience;
  const absl::MutexLock lock(&mu_);
  while (!ended_) {
    const absl::Duration left = deadline - clock.Now();
    if (left <= absl::ZeroDuration()) {
      return false;
    }
    changed_.WaitFor(mu_, left);
  }
  return true;
}

void DatabaseCheck::Run() {
  absl::Status found = db_->Check();
  if (!stopping_) {
    done_(std::move(found));
  }
  const absl::MutexLock lock(&mu_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace tandem::controller
