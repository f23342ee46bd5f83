// SPDX-License-Identifier: Apache-2.0
#include "worker/log_retention.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kAttemptPrefix[] = "attempt-";

struct AttemptLogs {
  AttemptKey attempt;
  fs::file_time_type written = fs::file_time_type::min();
  int64_t bytes = 0;
};

// What cannot be looked at counts as old and empty.
AttemptLogs Look(const std::string& root, const AttemptKey& attempt) {
  AttemptLogs logs{.attempt = attempt};
  std::error_code error;
  for (const fs::directory_entry& file :
       fs::directory_iterator(absl::StrCat(root, "/", AttemptPath(attempt)), error)) {
    const fs::file_time_type written = file.last_write_time(error);
    if (!error) {
      logs.written = std::max(logs.written, written);
    }
    struct stat info;  // of the disk: a long log begins with a hole (log_limit.h)
    if (stat(file.path().c_str(), &info) == 0) {
      logs.bytes += std::min<int64_t>(info.st_size, int64_t{info.st_blocks} * 512);
    }
  }
  return logs;
}

}  // namespace

std::string AttemptPath(const AttemptKey& attempt) {
  return absl::StrCat(attempt.job, "/", kAttemptPrefix, attempt.attempt);
}

absl::StatusOr<std::set<AttemptKey>> ListAttempts(platform::Files& files, const std::string& root) {
  std::set<AttemptKey> attempts;
  const absl::StatusOr<std::vector<std::string>> jobs = files.List(root);
  if (absl::IsNotFound(jobs.status())) {
    return attempts;
  }
  TANDEM_RETURN_IF_ERROR(jobs.status());
  for (const std::string& job : *jobs) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(absl::StrCat(root, "/", job)));
    for (const std::string& name : names) {
      absl::string_view number = name;
      AttemptKey key{.job = job};
      if (absl::ConsumePrefix(&number, kAttemptPrefix) && absl::SimpleAtoi(number, &key.attempt)) {
        attempts.insert(key);
      }
    }
  }
  return attempts;
}

absl::Status RemoveAttempt(platform::Files& files, const std::string& root, const AttemptKey& attempt) {
  TANDEM_RETURN_IF_ERROR(files.RemoveAll(absl::StrCat(root, "/", AttemptPath(attempt))));
  const std::string job = absl::StrCat(root, "/", attempt.job);
  const absl::StatusOr<std::vector<std::string>> others = files.List(job);
  return others.ok() && others->empty() ? files.RemoveAll(job) : absl::OkStatus();
}

std::string LogLimits::ToText() const {
  return absl::StrCat("its newest ", attempts, " ended attempts, ", bytes >> 20, " MiB at most");
}

void PruneLogs(platform::Files& files, const std::string& root, const std::set<AttemptKey>& needed,
               const LogLimits& limits) {
  const absl::StatusOr<std::set<AttemptKey>> attempts = ListAttempts(files, root);
  std::vector<AttemptLogs> ended;
  if (attempts.ok()) {
    for (const AttemptKey& attempt : *attempts) {
      if (!needed.contains(attempt)) {
        ended.push_back(Look(root, attempt));
      }
    }
  }
  std::stable_sort(ended.begin(), ended.end(),
                   [](const AttemptLogs& a, const AttemptLogs& b) { return a.written > b.written; });
  absl::Status status = attempts.status();
  int64_t bytes = 0;
  for (size_t i = 0; i < ended.size(); ++i) {
    bytes += ended[i].bytes;
    if (i == 0 || (i < limits.attempts && bytes <= limits.bytes)) {
      continue;
    }
    if (const absl::Status removed = RemoveAttempt(files, root, ended[i].attempt); !removed.ok()) {
      status = removed;
    }
  }
  if (!status.ok()) {
    platform::Log(platform::LogLevel::kWarning, "old logs of ranks could not be removed",
                  {{"error", std::string(status.message())}});
  }
}

}  // namespace tandem::worker
