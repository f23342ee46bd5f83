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

// What every command gets. Commands print, and return the exit code, or the error that they failed with
// (terminal/error.h): a command that gets a Client what that has answered, too.
struct Context {
  Console& console;
  const platform::Clock& clock;
  Environment environment;
  TargetFlags target;      // of the controller
  std::string own_folder;  // of the tandem binary and its daemons
  absl::TimeZone zone = absl::LocalTimeZone();
  std::string what = {};  // the command and its job, for messages: "cancel headers"

  // The width that tables may use: that of the terminal, 0 (no limit) if standard output is not a terminal.
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

// A job file, and what the command line says instead of it.
struct JobSource {
  std::string file;
  std::vector<std::string> set;  // "training.steps=20"; of two for one field the later counts
  std::string name;              // unless it is empty
  std::string resume;            // checkpoint.resume, unless it is empty
};

struct RunOptions : JobSource {
  int workers = 0;  // 0: as many as resources.ranks_per_worker asks for, else 1
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

// Submits a spec that LoadJobFile accepted. A controller that refuses it says why, on standard error, in its
// own words.
absl::StatusOr<v1::Job> SubmitSpec(Context& context, Client& client, const v1::JobSpec& spec,
                                   const std::string& request_id);

struct WatchOptions {
  std::string job;
  Format format = Format::kText;
};
Outcome Watch(Context& context, Client& client, const WatchOptions& options);

struct WaitOptions {
  std::string job;
  std::optional<absl::Duration> timeout;  // 0: one look
};
Outcome Wait(Context& context, Client& client, const WaitOptions& options);

// Follows a job with its output (watch, submit --follow): FollowJob, Ctrl-C ends the watch only.
Outcome WatchToEnd(Context& context, Client& client, const std::string& job, Format format, bool patient);

// The same in silence, until `timeout` (submit --wait, wait).
Outcome WaitToEnd(Context& context, Client& client, const std::string& job,
                  std::optional<absl::Duration> timeout, bool patient);

struct GetOptions {
  Format format = Format::kTable;
};
struct GetJobsOptions {
  Format format = Format::kTable;
  std::vector<std::string> states;   // StateNames(); empty: all
  std::vector<std::string> reasons;  // in any case; empty: all
};
Outcome GetJobs(Context& context, Client& client, const GetJobsOptions& options);
Outcome GetWorkers(Context& context, Client& client, const GetOptions& options);

struct DescribeOptions {
  std::string job;
  bool layout = false;  // only where its parameters and buffers lie
  Format format = Format::kTable;
};
Outcome Describe(Context& context, Client& client, const DescribeOptions& options);

struct EventsOptions {
  std::string job;      // empty: of all jobs, and of workers
  bool follow = false;  // until the job has ended, or for good
  Format format = Format::kTable;
};
Outcome Events(Context& context, Client& client, const EventsOptions& options);

// Events, a row each, oldest first; with_job: of several jobs.
std::string RenderEvents(const std::vector<v1::Event>& events, bool with_job, const Context& context);

struct CancelOptions {
  std::string job;
  bool checkpoint = false;                // whether what was trained is saved first
  std::optional<absl::Duration> timeout;  // how long to wait for that and the end; nullopt: not at all
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
  std::optional<int64_t> step;  // nullopt: list and verify take all steps, show takes the newest
};
Outcome ListCheckpoints(Context& context, const CheckpointFolderOptions& options);
Outcome ShowCheckpoint(Context& context, const CheckpointFolderOptions& options);
Outcome VerifyCheckpoints(Context& context, const CheckpointFolderOptions& options);

struct CheckpointDeleteOptions {
  std::string job;  // as of CheckpointFolderOptions
  std::optional<int64_t> step;
  bool all = false;  // also the last one that verifies
};
Outcome DeleteCheckpoint(Context& context, const CheckpointDeleteOptions& options);

struct CheckpointDiffOptions {
  std::string a;  // as CheckpointFolderOptions::job; the newest step of more
  std::string b;
};
Outcome DiffCheckpoints(Context& context, const CheckpointDiffOptions& options);

struct ExportCommandOptions {
  std::string job;              // or the folder of its checkpoints, or of one step
  std::optional<int64_t> step;  // nullopt: the newest
  std::string to;               // folder that is made
  std::string dtype = "bf16";   // or fp32
  std::string max_shard = "5GB";
  std::string tokenizer;  // folder; empty: that which the job started from
};
Outcome Export(Context& context, const ExportCommandOptions& options);

struct TopOptions {
  bool once = false;  // as always if standard output is not a terminal
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

// The words behind `data`, which the program tandem-py reads.
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
// Runs the program tandem-py, as Data does.
Outcome Follow(Context& context, const FollowOptions& options);

// shell: bash, zsh or fish.
struct CompletionOptions {
  std::string shell;
};
Outcome Completion(Context& context, const CompletionOptions& options);

struct MetricsOptions {
  std::string job;
  bool moe = false;  // the load of experts of one step instead
  int64_t step = 0;  // with moe; 0: the newest that has it
  Format format = Format::kTable;
};
Outcome Metrics(Context& context, Client& client, const MetricsOptions& options);

struct NormsOptions {
  std::string job;
  int64_t step = 0;         // 0: the newest that has norms
  int top = 0;              // 0: all, in the model's order; else the largest update/weight
  std::string norm = "l2";  // of the table: l2, rms or max
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
  std::string profile;  // likewise
  std::string base;     // preset whose rates the profile keeps; empty: the CPU's, for a job that runs there
};
Outcome Profile(Context& context, Client& client, const ProfileOptions& options);

Outcome Validate(Context& context, const JobSource& source);

struct GroupsOptions {
  std::string file;                          // of a job; or empty
  parallel::GridSizes sizes = {.world = 0};  // if there is no file
  std::vector<std::string> names;            // every group of these; empty: a line for each name
  Format format = Format::kTable;
};
Outcome Groups(Context& context, const GroupsOptions& options);

struct PlanOptions : JobSource {
  Format format = Format::kTable;
  bool program = false;                // print the step program too
  std::string profile = "cpu";         // of the device: a preset's name or a file
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

struct ContextListOptions {
  Format format = Format::kTable;
};
Outcome ContextList(Context& context, const ContextListOptions& options);
struct ContextOptions {
  std::string name;
};
Outcome ContextUse(Context& context, const ContextOptions& options);
Outcome ContextSet(Context& context, const ContextOptions& options);
Outcome ContextRemove(Context& context, const ContextOptions& options);

Outcome Version(Context& context, Client& client);

}  // namespace tandem::cli
