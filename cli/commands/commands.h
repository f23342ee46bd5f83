// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/cluster/client.h"
#include "cli/terminal/console.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/error.h"
#include "cli/terminal/table.h"
#include "parallel/grid_sizes.h"
#include "platform/clock.h"
#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// What every command gets. A command prints, and returns its exit code or the error that it failed with
// (terminal/error.h). A command that gets a Client may return the client's errors as they are; the caller
// makes Failures of them.
struct Context {
  Console& console;
  const platform::Clock& clock;
  Environment environment;
  TargetFlags target;      // of the controller
  std::string own_folder;  // of the tandem binary and its daemons
  absl::TimeZone zone = absl::LocalTimeZone();
  std::string what = {};  // the command and its job, for messages: "cancel headers"

  // Returns the width that tables may use: 0 (no limit) if standard output is not a terminal.
  int TableWidth() const { return console.IsTerminal(Stream::kOut) ? console.Size().columns : 0; }

  std::string Rendered(const Table& table) const { return table.Render(TableWidth(), console.unicode()); }

  // Print on standard output.
  void Print(absl::string_view text) const { console.Write(Stream::kOut, text); }
  void Print(const Table& table) const { Print(Rendered(table)); }
};

enum class Format { kTable, kJson, kYaml, kName, kText };

struct UpOptions {
  int workers = 1;
  int slots = 0;               // 0: one per processor
  std::string listen;          // HOST:PORT beside the private socket, or empty
  std::string metrics_listen;  // HOST:PORT, or "off"
  std::string bin_dir;         // empty: own_folder
  std::string trainer;         // empty: the worker's default
};
Outcome Up(Context& context, const UpOptions& options);

// A job file, and the command line's overrides of it.
struct JobSource {
  std::string file;
  std::vector<std::string> set;  // "training.steps=20"; the last one for a field wins
  std::string name;              // name of the job; empty: as in the file
  std::string resume;            // checkpoint.resume; empty: as in the file
};

struct RunOptions : JobSource {
  int workers = 0;  // 0: as resources.ranks_per_worker requires, else 1
  int slots = 0;    // 0: ranks / workers, rounded up
  Format format = Format::kText;
  std::string bin_dir;
  std::string trainer;
};
Outcome Run(Context& context, const RunOptions& options);

struct SubmitOptions : JobSource {
  std::string request_id;  // empty: a random one
  bool wait = false;
  bool follow = false;
};
Outcome Submit(Context& context, Client& client, const SubmitOptions& options);

// Submits a spec that LoadJobFile accepted. If the controller refuses it, prints the controller's reasons on
// standard error.
absl::StatusOr<v1::Job> SubmitSpec(Context& context, Client& client, const v1::JobSpec& spec,
                                   const std::string& request_id);

// Watch shows a job until it ends; Wait waits without showing it. Ctrl-C ends Watch or Wait, but not the job.
struct WatchOptions {
  std::string job;
  Format format = Format::kText;
  bool patient = false;  // see FollowRequest
};
Outcome Watch(Context& context, Client& client, const WatchOptions& options);

struct WaitOptions {
  std::string job;
  std::optional<absl::Duration> timeout;  // 0: checks once; nullopt: no limit
  bool patient = false;                   // see FollowRequest
};
Outcome Wait(Context& context, Client& client, const WaitOptions& options);

struct GetOptions {
  Format format = Format::kTable;
};
struct GetJobsOptions {
  Format format = Format::kTable;
  std::vector<std::string> states;   // StateNames(); empty: all
  std::vector<std::string> reasons;  // upper or lower case; empty: all
};
Outcome GetJobs(Context& context, Client& client, const GetJobsOptions& options);
Outcome GetWorkers(Context& context, Client& client, const GetOptions& options);

struct DescribeOptions {
  std::string job;
  bool layout = false;  // shows only the job's groups, buffers and offsets of parameters
  Format format = Format::kTable;
};
Outcome Describe(Context& context, Client& client, const DescribeOptions& options);

struct EventsOptions {
  std::string job;      // empty: of all jobs, and of workers
  bool follow = false;  // until the job has ended; without a job, forever
  Format format = Format::kTable;
};
Outcome Events(Context& context, Client& client, const EventsOptions& options);

// Returns a table with one row for each event. with_job: with a column for the job.
std::string RenderEvents(const std::vector<v1::Event>& events, bool with_job, const Context& context);

struct CancelOptions {
  std::string job;
  bool checkpoint = false;                // save a checkpoint first
  std::optional<absl::Duration> timeout;  // how long to wait for the end; nullopt: not at all
};
Outcome Cancel(Context& context, Client& client, const CancelOptions& options);

struct CheckpointOptions {
  std::string job;
  bool no_wait = false;
  absl::Duration timeout = absl::InfiniteDuration();
};
Outcome CheckpointNow(Context& context, Client& client, const CheckpointOptions& options);

struct CheckpointFolderOptions {
  std::string job;              // or the folder of its checkpoints, or of one step
  std::optional<int64_t> step;  // nullopt: all steps for list and verify, the newest for show
};
Outcome ListCheckpoints(Context& context, const CheckpointFolderOptions& options);
Outcome ShowCheckpoint(Context& context, const CheckpointFolderOptions& options);
Outcome VerifyCheckpoints(Context& context, const CheckpointFolderOptions& options);

struct CheckpointDeleteOptions {
  std::string job;  // as CheckpointFolderOptions::job
  std::optional<int64_t> step;
  bool all = false;  // even the last step that verifies
};
Outcome DeleteCheckpoint(Context& context, const CheckpointDeleteOptions& options);

struct CheckpointDiffOptions {
  std::string a;  // as CheckpointFolderOptions::job; of several steps the newest
  std::string b;
};
Outcome DiffCheckpoints(Context& context, const CheckpointDiffOptions& options);

struct ExportCommandOptions {
  std::string job;              // or the folder of its checkpoints, or of one step
  std::optional<int64_t> step;  // nullopt: the newest
  std::string to;               // folder to make
  std::string dtype = "bf16";   // or fp32
  std::string max_shard = "5GB";
  std::string tokenizer;  // folder; empty: the one that the job started from
};
Outcome Export(Context& context, const ExportCommandOptions& options);

struct TopOptions {
  bool once = false;  // print once and exit; always so without a terminal
};
Outcome Top(Context& context, Client& client, const TopOptions& options);

struct HealthOptions {
  absl::Duration timeout = absl::Seconds(2);
};
Outcome Health(Context& context, Client& client, const HealthOptions& options);

struct SignInOptions {};
Outcome SignIn(Context& context, Client& client, const SignInOptions& options);

struct DoctorOptions {
  std::vector<std::string> folders;  // that all workers are to share
  Format format = Format::kTable;
};
Outcome Doctor(Context& context, Client& client, const DoctorOptions& options);

// The words after `data`, which the program tandem-py parses.
struct DataOptions {
  std::vector<std::string> words;
};
Outcome Data(Context& context, const DataOptions& options);

struct FollowOptions {
  std::string job;
  std::string to;       // csv, mlflow or wandb
  std::string out;      // empty: the job's name
  std::string project;  // empty: tandem
  bool offline = false;
  int64_t norms_every = 100;  // 0: never
};
// Replaces this process by the program tandem-py, as Data does.
Outcome Follow(Context& context, const FollowOptions& options);

struct CompletionOptions {
  std::string shell;  // bash, zsh or fish
};
Outcome Completion(Context& context, const CompletionOptions& options);

struct MetricsOptions {
  std::string job;
  bool moe = false;  // show the load of experts in one step instead
  int64_t step = 0;  // with moe; 0: the newest that has it
  Format format = Format::kTable;
};
Outcome Metrics(Context& context, Client& client, const MetricsOptions& options);

struct NormsOptions {
  std::string job;
  int64_t step = 0;         // 0: the newest that has norms
  int top = 0;              // 0: all, in the model's order; else so many, by update/weight
  std::string norm = "l2";  // that the table shows: l2, rms or max
  Format format = Format::kTable;
};
Outcome Norms(Context& context, Client& client, const NormsOptions& options);

struct LogsOptions {
  std::string job;
  int rank = 0;
  bool all = false;
  bool follow = false;
  int64_t tail = 0;  // 0: all lines
};
Outcome Logs(Context& context, Client& client, const LogsOptions& options);

struct ProfileOptions {
  std::string job;
  int steps = 2;
  std::string trace;    // file to write; empty: no trace
  std::string profile;  // file to write; empty: no device profile
  std::string base;     // preset whose rates the profile keeps; empty: cpu, for jobs on CPUs
};
Outcome Profile(Context& context, Client& client, const ProfileOptions& options);

Outcome Validate(Context& context, const JobSource& source);

struct GroupsOptions {
  std::string file;  // job file; empty: `sizes` is used
  parallel::GridSizes sizes = {.world = 0};
  std::vector<std::string> names;  // list every group of these names; empty: a line for each name
  Format format = Format::kTable;
};
Outcome Groups(Context& context, const GroupsOptions& options);

struct PlanOptions : JobSource {
  Format format = Format::kTable;
  bool program = false;                // print the step programs too
  std::string profile = "cpu";         // of the device: the name of a preset, or a file
  std::optional<std::string> compare;  // "prefetch=0,1,2"
  std::string trace;                   // file to write, or empty
};
Outcome Plan(Context& context, const PlanOptions& options);

struct CertsOptions {
  std::string folder;
  std::vector<std::string> hosts;  // of the controller
  std::vector<std::string> workers;
  std::vector<std::string> users;
  std::vector<std::string> admins;
  int days = 365;
  std::string domain;
  bool renew = false;
};
Outcome CertsInit(Context& context, const CertsOptions& options);
Outcome CertsIssue(Context& context, const CertsOptions& options);
struct CertsShowOptions {
  std::vector<std::string> files;
};
Outcome CertsShow(Context& context, const CertsShowOptions& options);

Outcome ContextList(Context& context, const GetOptions& options);
struct ContextOptions {
  std::string name;
};
Outcome ContextUse(Context& context, const ContextOptions& options);
Outcome ContextSet(Context& context, const ContextOptions& options);
Outcome ContextRemove(Context& context, const ContextOptions& options);

Outcome Version(Context& context, Client& client);

}  // namespace tandem::cli
