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
#include "cli/cluster/watch_stream.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

class Connection;

// The users' service of one controller. Unary calls wait 10 s at most and are repeated twice if the
// connection fails (all are idempotent: Submit by its request id). Limits go by the steady clock. Errors
// carry the controller's text; Unavailable if nothing answers. Not thread-safe.
class Client {
 public:
  explicit Client(Address address);
  ~Client();

  const Address& address() const { return address_; }

  // Cancelled once `given_up`, which is asked four times a second, returns true.
  absl::StatusOr<v1::Job> Submit(const v1::SubmitRequest& request,
                                 const std::function<bool()>& given_up = nullptr);
  absl::StatusOr<v1::Job> GetJob(const std::string& job);
  // checkpoint: whether the job first saves what it has trained.
  absl::StatusOr<v1::Job> Cancel(const std::string& job, const std::string& reason, bool checkpoint = false);
  absl::StatusOr<v1::Job> Checkpoint(const std::string& job);
  absl::StatusOr<v1::ServerInfo> GetServerInfo(absl::Duration timeout);
  absl::StatusOr<v1::SignInResponse> SignIn();

  // Return all pages: jobs newest first (of any state if `states` is empty; brief: as in ListJobsRequest, for
  // tables), workers by id.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const std::vector<v1::JobState>& states = {},
                                                bool brief = false);
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();
  // Returns OK if the controller answers a call for which it needs its deciding thread.
  absl::Status CheckDecides(absl::Duration timeout);
  // Returns the events of a job, or of all if `job` is empty, whose seq is above after_seq, oldest first.
  absl::StatusOr<std::vector<v1::Event>> ListEvents(const std::string& job, int64_t after_seq = 0);

  // Calls `each` for each page, in the order of steps, until it returns false. Steps as in
  // ListReportsRequest.
  absl::Status ListReports(const std::string& job, int64_t first_step, int64_t last_step, bool norms,
                           const std::function<bool(const v1::ListReportsResponse&)>& each);

  // Reads until the log ends (with follow: until its attempt does), or `each`, which another thread calls,
  // returns false; Cancelled once `given_up` returns true.
  absl::Status ReadLog(const v1::LogRequest& request, const std::function<bool(const v1::LogChunk&)>& each,
                       const std::function<bool()>& given_up = nullptr);

  // Reads until every step of every rank has come, or `each`, which another thread calls, returns false.
  absl::Status Profile(const v1::ProfileRequest& request,
                       const std::function<bool(const v1::ProfileChunk&)>& each);

  std::unique_ptr<WatchStream> Watch(const v1::WatchRequest& request);

 private:
  const Address address_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace tandem::cli
