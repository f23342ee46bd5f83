// SPDX-License-Identifier: Apache-2.0
#include "worker/records.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/failpoint.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"
#include "proto/time.h"
#include "worker/cause.h"

namespace tandem::worker {
namespace {

constexpr absl::Duration kKillLimit = absl::Minutes(1);  // the kernel may free much memory
constexpr int64_t kMostRecordBytes = int64_t{64} << 20;

std::string RanksFile(const std::string& folder) { return folder + "/ranks.json"; }
std::string EndFile(const std::string& folder) { return folder + "/ended.pb"; }

// Returns the record of an attempt; empty if there is none or it is too large to be one. If it cannot be
// read now, returns an error, because it may exist, and must not be replaced by another end.
absl::StatusOr<std::string> ReadRecord(platform::Files& files, const std::string& path) {
  absl::StatusOr<std::string> text = platform::ReadAtMost(files, path, kMostRecordBytes);
  const bool is_none = absl::IsNotFound(text.status()) || absl::IsInvalidArgument(text.status());
  return is_none ? std::string() : std::move(text);
}

// Returns the record of an attempt's ranks as an object; empty if there is none or it is torn.
absl::StatusOr<nlohmann::json> ReadRanks(platform::Files& files, const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadRecord(files, RanksFile(folder)));
  nlohmann::json record = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return record.is_object() ? std::move(record) : nlohmann::json::object();
}

}  // namespace

absl::StatusOr<Records> Records::Open(platform::Files& files, const std::string& folder,
                                      const LogLimits& log_limits) {
  TANDEM_RETURN_IF_ERROR(files.CreateFolders(folder));
  const std::string path = folder + "/lock";
  TANDEM_ASSIGN_OR_RETURN(platform::Descriptor file, platform::OpenRegularFile(path, O_RDWR | O_CREAT, 0644));
  const int fd = file.get();
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t got = read(fd, pid, sizeof(pid) - 1);
    return absl::FailedPreconditionError(
        absl::StrCat("the state directory ", folder, " is in use by another tandem-worker",
                     got > 0 ? " with pid " : "", pid, "; give this one another --state, or stop that one"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(fd, 0) != 0 || write(fd, pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) {
    return platform::FileError(errno, "write", path);
  }
  LogLimits limits = log_limits;
  if (const absl::StatusOr<int64_t> disk = DiskBytes(folder); disk.ok()) {
    limits.bytes = std::min(limits.bytes, MostEndedLogBytes(*disk));
  }
  return Records(files, folder, limits, std::move(file));
}

std::string Records::AttemptFolder(const AttemptKey& attempt) const {
  return absl::StrCat(folder_, "/attempts/", AttemptPath(attempt));
}

std::string Records::LogFile(const RankKey& rank) const {
  return absl::StrCat(folder_, "/logs/", AttemptPath(rank.attempt), "/rank-", rank.rank, ".log");
}

absl::Status Records::WriteRanks(const AttemptKey& attempt, const RanksRecord& ranks) {
  TANDEM_ASSIGN_OR_RETURN(const std::string boot, BootId());
  nlohmann::ordered_json record;
  record["boot"] = boot;
  record["store"] = ranks.store_id;
  if (!ranks.metrics.directory.empty()) {
    record["metrics"] = {{"directory", ranks.metrics.directory},
                         {"first_step", ranks.metrics.first_step},
                         {"last_step", ranks.metrics.last_step}};
  }
  record["ranks"] = nlohmann::ordered_json::array();
  for (const auto& [rank, process] : ranks.ranks) {
    record["ranks"].push_back({{"rank", rank}, {"pid", process.pid}, {"start_time", process.start_time}});
  }
  const std::string folder = AttemptFolder(attempt);
  const std::string log = LogFile({attempt, 0});
  for (const std::string& needed : {folder, log.substr(0, log.rfind('/'))}) {
    TANDEM_RETURN_IF_ERROR(files_.CreateFolders(needed));
  }
  return platform::ReplaceFile(files_, RanksFile(folder), record.dump(1) + "\n");
}

absl::Status Records::WriteEnd(const v1::AttemptStatus& status) {
  const std::string folder = AttemptFolder(KeyOf(status.id()));
  TANDEM_RETURN_IF_ERROR(files_.CreateFolders(folder));
  TANDEM_FAILPOINT("worker.before_record_end");
  const absl::Status written = platform::ReplaceFile(files_, EndFile(folder), status.SerializeAsString());
  TANDEM_FAILPOINT("worker.after_record_end");
  return written;
}

absl::Status Records::Forget(const AttemptKey& attempt) {
  const std::string root = folder_ + "/attempts";
  TANDEM_RETURN_IF_ERROR(RemoveAttempt(files_, root, attempt));
  const absl::StatusOr<std::set<AttemptKey>> needed = ListAttempts(files_, root);
  if (needed.ok()) {
    PruneLogs(files_, folder_ + "/logs", *needed, log_limits_);
  }
  return needed.status();
}

absl::StatusOr<std::map<AttemptKey, MetricsPlace>> Records::MetricsPlaces() const {
  TANDEM_ASSIGN_OR_RETURN(const std::set<AttemptKey> attempts, ListAttempts(files_, folder_ + "/attempts"));
  std::map<AttemptKey, MetricsPlace> places;
  for (const AttemptKey& attempt : attempts) {
    TANDEM_ASSIGN_OR_RETURN(const nlohmann::json record, ReadRanks(files_, AttemptFolder(attempt)));
    if (record.contains("metrics")) {
      places[attempt] = {.directory = record["metrics"].value("directory", ""),
                         .first_step = record["metrics"].value("first_step", int64_t{0}),
                         .last_step = record["metrics"].value("last_step", int64_t{0})};
    }
  }
  return places;
}

absl::StatusOr<std::vector<v1::AttemptStatus>> Records::Recover(const std::string& worker_id,
                                                                absl::Time now) {
  TANDEM_ASSIGN_OR_RETURN(const std::set<AttemptKey> attempts, ListAttempts(files_, folder_ + "/attempts"));
  std::vector<v1::AttemptStatus> ends;
  for (const AttemptKey& attempt : attempts) {
    TANDEM_ASSIGN_OR_RETURN(v1::AttemptStatus end, RecoverAttempt(attempt, worker_id, now));
    ends.push_back(std::move(end));
  }
  return ends;
}

absl::StatusOr<v1::AttemptStatus> Records::RecoverAttempt(const AttemptKey& attempt,
                                                          const std::string& worker_id, absl::Time now) {
  const std::string folder = AttemptFolder(attempt);
  v1::AttemptStatus status;
  TANDEM_ASSIGN_OR_RETURN(const std::string ended, ReadRecord(files_, EndFile(folder)));
  if (!ended.empty() && status.ParseFromString(ended)) {
    return status;
  }

  status.Clear();
  *status.mutable_id() = IdOf(attempt);
  status.set_ended(true);
  // Without a record of ranks no rank was started, because the record is durable before.
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json record, ReadRanks(files_, folder));
  TANDEM_ASSIGN_OR_RETURN(const std::string boot, BootId());
  status.set_store_id(record.value("store", ""));
  const bool same_boot = record.value("boot", "") == boot;
  for (const nlohmann::json& rank : record.value("ranks", nlohmann::json::array())) {
    const ProcessId process{.pid = rank.value("pid", 0), .start_time = rank.value("start_time", uint64_t{0})};
    if (same_boot && process.pid > 0) {
      TANDEM_RETURN_IF_ERROR(KillLeftover(process, kKillLimit));
    }
    v1::RankStatus& out = *status.add_ranks();
    out.set_rank(rank.value("rank", 0));
    out.set_phase(v1::RANK_PHASE_EXITED);
    out.set_exited(true);
    out.set_pid(process.pid);
    v1::Cause& cause = *out.mutable_cause();
    cause.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
    cause.set_reason(proto::ReasonCode("WorkerLost"));
    cause.set_message(absl::StrCat("rank ", out.rank(), " died with the daemon of worker ", worker_id));
    cause.set_rank(out.rank());
    cause.set_worker(worker_id);
    *cause.mutable_time() = proto::ToProto(now);
  }
  TANDEM_RETURN_IF_ERROR(WriteEnd(status));
  return status;
}

}  // namespace tandem::worker
