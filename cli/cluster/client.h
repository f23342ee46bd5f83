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

// The users' service of one controller. Unary calls wait 10 s at most and are repeated twice where the
// connection fails (all are idempotent: Submit by its request id). Limits go by the steady clock. Errors
// carry the controller's text; Unavailable if nothing answers. Not thread-safe.
class Client {
 public:
  explicit Client(Address address);
  ~Client();

  const Address& address() const { return address_; }

  // Cancelled once `given_up`, which another thread calls, returns true.
  absl::StatusOr<v1::Job> Submit(const v1::SubmitRequest& request,
                                 const std::function<bool()>& given_up = nullptr);
  absl::StatusOr<v1::Job> GetJob(const std::string& job);
  // checkpoint: of what was trained, first.
  absl::StatusOr<v1::Job> Cancel(const std::string& job, const std::string& reason, bool checkpoint = false);
  absl::StatusOr<v1::Job> Checkpoint(const std::string& job);
  absl::StatusOr<v1::ServerInfo> GetServerInfo(absl::Duration timeout);
  absl::StatusOr<v1::SignInResponse> SignIn();

  // All pages, newest first, by id, and oldest first. Without states: jobs in any. brief: as in
  // ListJobsRequest, for tables.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const std::vector<v1::JobState>& states = {},
                                                bool brief = false);
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();
  // Whether the controller decides: it answers a call that its deciding thread must.
  absl::Status CheckDecides(absl::Duration timeout);
  // Without a job: of all. after_seq: only those with a higher seq.
  absl::StatusOr<std::vector<v1::Event>> ListEvents(const std::string& job, int64_t after_seq = 0);

  // Page by page, in the order of steps, until `each` returns false. Steps as in ListReportsRequest.
  absl::Status ListReports(const std::string& job, int64_t first_step, int64_t last_step, bool norms,
                           const std::function<bool(const v1::ListReportsResponse&)>& each);

  // Until the log ends (with follow: until its attempt does), or `each` returns false; Cancelled once
  // `given_up`, which another thread calls, returns true.
  absl::Status ReadLog(const v1::LogRequest& request, const std::function<bool(const v1::LogChunk&)>& each,
                       const std::function<bool()>& given_up = nullptr);

  // Until every step of every rank has come, or `each` returns false.
  absl::Status Profile(const v1::ProfileRequest& request,
                       const std::function<bool(const v1::ProfileChunk&)>& each);

  std::unique_ptr<WatchStream> Watch(const v1::WatchRequest& request);

 private:
  const Address address_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace tandem::cli
