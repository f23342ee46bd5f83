// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/address.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

class Connection;

// Calls the service for users (jobs.proto) of one controller. Unary calls have a limit of 10 s; Submit has 3
// min if the controller has to choose the prefetch distance. Calls are repeated up to twice if the connection
// fails; all are idempotent, Submit by its request id. Limits use the steady clock. Errors have the
// controller's message, or are Unavailable if none answers. Not thread-safe.
class Client {
 public:
  explicit Client(Address address);
  ~Client();

  const Address& address() const { return address_; }

  // Calls `given_up` four times a second; returns Cancelled once `given_up` returns true.
  absl::StatusOr<v1::Job> Submit(const v1::SubmitRequest& request,
                                 const std::function<bool()>& given_up = nullptr);
  absl::StatusOr<v1::Job> GetJob(const std::string& job);
  // checkpoint: whether the job saves a checkpoint first.
  absl::StatusOr<v1::Job> Cancel(const std::string& job, const std::string& reason, bool checkpoint = false);
  absl::StatusOr<v1::Job> Checkpoint(const std::string& job);
  absl::StatusOr<v1::ServerInfo> GetServerInfo(absl::Duration timeout);
  absl::StatusOr<v1::SignInResponse> SignIn();

  // Returns the jobs in one of `states`, or all if it is empty, newest first. brief: leaves out what tables
  // do not show (ListJobsRequest).
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const std::vector<v1::JobState>& states = {},
                                                bool brief = false);
  // Returns all workers, by id.
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();
  // Checks that the controller's deciding thread answers: makes a call that only this thread can answer.
  absl::Status CheckDecides(absl::Duration timeout);
  // Returns the events with a seq above after_seq, oldest first: those of `job`, or all if it is empty.
  absl::StatusOr<std::vector<v1::Event>> ListEvents(const std::string& job, int64_t after_seq = 0);

  // Calls `each` for each page, in the order of steps, until it returns false. For the range of steps see
  // ListReportsRequest.
  absl::Status ListReports(const std::string& job, int64_t first_step, int64_t last_step, bool norms,
                           const std::function<bool(const v1::ListReportsResponse&)>& each);

  // Calls `each`, on another thread, for each chunk of a log, until it returns false or the log ends; a log
  // that is followed ends with the job's attempt. Returns Cancelled once `given_up` returns true.
  absl::Status ReadLog(const v1::LogRequest& request, const std::function<bool(const v1::LogChunk&)>& each,
                       const std::function<bool()>& given_up = nullptr);

  // Calls `each` for each recorded step of each rank, until it returns false or all have arrived.
  absl::Status Profile(const v1::ProfileRequest& request,
                       const std::function<bool(const v1::ProfileChunk&)>& each);

 private:
  const Address address_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace tandem::cli
