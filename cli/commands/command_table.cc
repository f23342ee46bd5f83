// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "cli/commands/command_tree.h"
#include "cli/terminal/message_text.h"
#include "platform/build_info.h"
#include "tls/identity.h"

namespace tandem::cli {
namespace {

constexpr char kFooter[] = R"(
Examples:
  tandem run -f job.yaml                 train on this machine: start a cluster, train, stop it
  tandem up --workers 2                  run a cluster on this machine until Ctrl-C
  tandem submit -f job.yaml --follow     submit a job to the current cluster and watch it
  tandem plan -f job.yaml                show time, memory and step program before the job runs

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 invalid job, 5 denied, 6 unreachable, 7 timeout,
130 interrupted by Ctrl-C. run, watch, wait and submit with --wait or --follow exit with the job's status:
SUCCEEDED 0, FAILED 1, CANCELLED 130; 75 if the job saved a checkpoint because a worker was shut down
(submit it again with --resume newest).)";

void AddTarget(CLI::App* app, TargetFlags& target) {
  AddValue(app, "--addr", target.addr, "ADDRESS", "Controller: HOST:PORT or unix:/PATH");
  AddValue(app, "--context", target.context, "NAME", "Name of a cluster in ~/.config/tandem/config.yaml");
  AddValue(app, "--tls-ca", target.tls.ca, "FILE",
           "CA certificates (PEM) that sign the controller's certificate");
  AddValue(app, "--tls-cert", target.tls.certificate, "FILE", "Your certificate (PEM)");
  AddValue(app, "--tls-key", target.tls.key, "FILE", "Key of --tls-cert (PEM)");
  AddValue(app, "--tls-server-name", target.tls.server_name, "NAME",
           "Name in the controller's certificate, where it is not the host of --addr");
}

// Adds the options of submit and run that override the file.
void AddJobOverrides(CLI::App* command, JobSource& source) {
  AddJobFile(command, source);
  AddValue(command, "--name", source.name, "NAME", "Name of the job; overrides the file");
  AddValue(
      command, "--resume", source.resume, "WHERE",
      "Where to start: newest, none or the path of a checkpoint; overrides checkpoint.resume of the file");
}

void AddLocal(CommandTree& tree) {
  auto [up, up_options] = tree.Add<UpOptions>("up", "Run a cluster on this machine until Ctrl-C", Up);
  up->add_option("--workers", up_options->workers, "Number of workers (default 1)")
      ->check(CLI::Range(1, 1024));
  up->add_option("--slots", up_options->slots,
                 "CPU slots on each worker (default: number of processors); each GPU is a further slot")
      ->check(CLI::Range(1, 1024));
  AddValue(up, "--listen", up_options->listen, "ADDRESS", "Also listen on HOST:PORT, without TLS");
  up_options->metrics_listen = "127.0.0.1:9464";
  AddValue(up, "--metrics-listen", up_options->metrics_listen, "ADDRESS",
           "Prometheus: HOST:PORT or off (default 127.0.0.1:9464)");
  AddDaemons(up, *up_options);

  auto [run, run_options] = tree.Add<RunOptions>(
      "run", "Train on this machine: start a cluster, submit, watch, stop the cluster", Run);
  AddJobOverrides(run, *run_options);
  run->add_option("--workers", run_options->workers,
                  "Number of workers (default: what resources.ranks_per_worker requires, else 1)")
      ->check(CLI::Range(1, 1024));
  run->add_option("--slots", run_options->slots,
                  "CPU slots on each worker (default: ranks / workers); each GPU is a further slot")
      ->check(CLI::Range(1, 1024));
  tree.AddFormat(run, run_options->format, {"text", "json"});
  AddDaemons(run, *run_options);
}

CLI::Option* AddCheckpointFolder(CLI::App* command, std::string& folder, const std::string& name) {
  return AddValue(command, name, folder, "",
                  "Job, by id or name, whose checkpoints this machine sees; or the folder of its "
                  "checkpoints, or of one step")
      ->required();
}

void AddCheckpointFolders(CommandTree& tree, CLI::App* family) {
  auto [list, list_options] =
      tree.Add<CheckpointFolderOptions>("list", "List the steps, newest first", ListCheckpoints, family);
  AddCheckpointFolder(list, list_options->job, "JOB");
  auto [show, show_options] =
      tree.Add<CheckpointFolderOptions>("show", "Show what was saved with a step", ShowCheckpoint, family);
  AddCheckpointFolder(show, show_options->job, "JOB");
  show->add_option("--step", show_options->step, "Step (default: the newest)")->check(AtLeast(0));
  auto [verify, verify_options] = tree.Add<CheckpointFolderOptions>(
      "verify", "Read every byte, and compare digests; exit code 1 if a step is damaged", VerifyCheckpoints,
      family);
  AddCheckpointFolder(verify, verify_options->job, "JOB");
  verify->add_option("--step", verify_options->step, "Step (default: all)")->check(AtLeast(0));
  auto [diff, diff_options] = tree.Add<CheckpointDiffOptions>(
      "diff", "Compare the arrays of two steps; exit code 1 unless all bits are equal", DiffCheckpoints,
      family);
  AddCheckpointFolder(diff, diff_options->a, "A");
  AddCheckpointFolder(diff, diff_options->b, "B");
  auto [erase, erase_options] = tree.Add<CheckpointDeleteOptions>(
      "delete", "Delete a step, unless a job that has not ended may need it", DeleteCheckpoint, family);
  AddCheckpointFolder(erase, erase_options->job, "JOB");
  erase->add_option("--step", erase_options->step, "Step; omit it if JOB is the folder of one step")
      ->check(AtLeast(0));
  erase->add_flag("--all", erase_options->all, "Also the last step that verifies");
}

void AddJobs(CommandTree& tree) {
  auto [submit, submit_options] = tree.Add<SubmitOptions>("submit", "Submit a job and print its id", Submit);
  AddJobOverrides(submit, *submit_options);
  AddValue(submit, "--request-id", submit_options->request_id, "ID",
           "Id of this submission; a second submission with the same id returns the same job");
  CLI::Option* wait =
      submit->add_flag("--wait", submit_options->wait, "Wait for the job and exit with its status");
  submit->add_flag("--follow", submit_options->follow, "Watch the job and exit with its status")
      ->excludes(wait);

  auto [watch, watch_options] =
      tree.Add<WatchOptions>("watch", "Watch a job and exit with its status", Watch);
  AddJob(watch, watch_options->job);
  tree.AddFormat(watch, watch_options->format, {"text", "json"});

  auto [wait_for, wait_options] =
      tree.Add<WaitOptions>("wait", "Wait for a job and exit with its status", Wait);
  AddJob(wait_for, wait_options->job);
  AddTimeout(wait_for, wait_options->timeout,
             "Give up after this time with exit code 7: 30s, 10m, 2h; 0s checks once");

  auto [cancel, cancel_options] = tree.Add<CancelOptions>("cancel", "Stop a job", Cancel);
  AddJob(cancel, cancel_options->job);
  CLI::Option* const saves = cancel->add_flag("--checkpoint", cancel_options->checkpoint,
                                              "Save a checkpoint first; if that fails, the job is FAILED");
  AddTimeout(cancel, cancel_options->timeout,
             "Wait for the checkpoint and the job's end, and stop waiting after this time with exit code 7; "
             "the request stays: 30s, 10m, 2h")
      ->needs(saves);

  CLI::App* checkpoint = tree.AddFamily("checkpoint", "Save, list, check, compare and delete checkpoints");
  auto [now, now_options] = tree.Add<CheckpointOptions>(
      "now", "Save a checkpoint after the current step, continue, and print its folder", CheckpointNow,
      checkpoint);
  AddJob(now, now_options->job);
  now->add_flag("--no-wait", now_options->no_wait, "Request the checkpoint without waiting for it");
  AddTimeout(now, now_options->timeout,
             "Stop waiting after this time with exit code 7; the request stays: 30s, 10m, 2h");
  AddCheckpointFolders(tree, checkpoint);
}

void AddExport(CommandTree& tree) {
  auto [exported, options] = tree.Add<ExportCommandOptions>(
      "export", "Write the weights of a checkpoint as a Hugging Face model", Export);
  AddCheckpointFolder(exported, options->job, "JOB");
  exported->add_option("--step", options->step, "Step (default: the newest)")->check(AtLeast(0));
  AddValue(exported, "--to", options->to, "FOLDER", "Folder to make; it must not exist")->required();
  tree.AddChoice(exported, "--dtype", options->dtype, "TYPE",
                 "Type of the weights: bf16 or fp32 (default bf16)", {"bf16", "fp32"});
  AddValue(exported, "--max-shard", options->max_shard, "SIZE",
           "Largest file of weights: 500MB, 5GB (default 5GB)");
  AddValue(exported, "--tokenizer", options->tokenizer, "FOLDER",
           "Folder of the tokenizer's files (default: those that the job started from)");
}

void AddGet(CommandTree& tree) {
  CLI::App* get = tree.AddFamily("get", "List jobs or workers");
  auto [jobs, jobs_options] = tree.Add<GetJobsOptions>("jobs", "List jobs, newest first", GetJobs, get);
  tree.Offer(
      jobs->add_option("--state", jobs_options->states, "Only jobs in one of these states: RUNNING,QUEUED")
          ->delimiter(',')
          ->check(CLI::IsMember(StateNames(), CLI::ignore_case))
          ->type_name("STATES"),
      StateNames());
  AddValue(jobs, "--reason", jobs_options->reasons, "REASONS", "Only jobs with one of these reasons")
      ->delimiter(',');
  tree.AddFormat(jobs, jobs_options->format, {"table", "json", "yaml", "name"});
  auto [workers, workers_options] =
      tree.Add<GetOptions>("workers", "List workers and their slots", GetWorkers, get);
  tree.AddFormat(workers, workers_options->format, {"table", "json", "yaml", "name"});
}

void AddDescribe(CommandTree& tree) {
  auto [describe, describe_options] =
      tree.Add<DescribeOptions>("describe", "Show everything about one job", Describe);
  AddJob(describe, describe_options->job);
  describe
      ->add_flag("--layout", describe_options->layout,
                 "Only its process groups, units, buffers and padding, and the offset of every parameter")
      ->excludes(tree.AddFormat(describe, describe_options->format, {"table", "json", "yaml"}));
}

void AddOutput(CommandTree& tree) {
  auto [logs, logs_options] = tree.Add<LogsOptions>("logs", "Print the output of a job's ranks", Logs);
  AddJob(logs, logs_options->job);
  CLI::Option* rank = logs->add_option("--rank", logs_options->rank, "Rank (default 0)")->check(AtLeast(0));
  logs->add_flag("--all", logs_options->all, "All ranks, each line with its rank")->excludes(rank);
  logs->add_flag("-f,--follow", logs_options->follow, "Keep printing as the log grows");
  AddValue(logs, "--tail", logs_options->tail, "LINES", "Print only this many of the last lines")
      ->check(AtLeast(1));

  auto [events, events_options] = tree.Add<EventsOptions>(
      "events", "List the events of a job, or of all jobs and workers, oldest first", Events);
  AddJob(events, events_options->job)->required(false);
  events->add_flag("-f,--follow", events_options->follow, "Keep printing new events until the job has ended");
  tree.AddFormat(events, events_options->format, {"table", "json", "yaml"});
}

void AddProfile(CommandTree& tree) {
  auto [profile, profile_options] = tree.Add<ProfileOptions>(
      "profile", "Measure the next steps of a running job, instruction by instruction", Profile);
  AddJob(profile, profile_options->job);
  profile->add_option("--steps", profile_options->steps, "Steps to record (default 2)")
      ->check(CLI::Range(1, 16));
  AddValue(profile, "--trace", profile_options->trace, "FILE", "Write a trace, for ui.perfetto.dev");
  CLI::Option* measured =
      AddValue(profile, "--profile", profile_options->profile, "FILE",
               "Also record as many steps with one instruction at a time, and write a device profile for "
               "`tandem plan --profile`");
  AddValue(profile, "--base", profile_options->base, "NAME",
           "Preset whose rates the profile uses for what was not measured (default on CPUs: cpu)")
      ->needs(measured);
}

void AddReports(CommandTree& tree) {
  auto [metrics, metrics_options] =
      tree.Add<MetricsOptions>("metrics", "List loss, gradient norm and time of every step", Metrics);
  AddJob(metrics, metrics_options->job);
  CLI::Option* moe =
      metrics->add_flag("--moe", metrics_options->moe,
                        "Show how the routers of sparse layers loaded their experts in one step");
  metrics->add_option("--step", metrics_options->step, "Step (default: the newest)")
      ->check(AtLeast(1))
      ->needs(moe);
  tree.AddFormat(metrics, metrics_options->format, {"table", "json"});

  auto [norms, norms_options] = tree.Add<NormsOptions>(
      "norms", "List norms of every parameter, gradient and update of one step", Norms);
  AddJob(norms, norms_options->job);
  norms->add_option("--step", norms_options->step, "Step (default: the newest)")->check(AtLeast(1));
  norms
      ->add_option("--top", norms_options->top,
                   "Show only this many parameters: those with the largest update relative to the weight")
      ->check(AtLeast(1));
  norms
      ->add_option("--norm", norms_options->norm,
                   "What the table shows: l2, rms (root mean square) or max (largest magnitude); -o json has "
                   "all (default l2)")
      ->check(CLI::IsMember({"l2", "rms", "max"}));
  tree.AddFormat(norms, norms_options->format, {"table", "json"});
}

void AddFollow(CommandTree& tree) {
  auto [follow, options] = tree.Add<FollowOptions>(
      "follow", "Write a job's steps into a tracker or a CSV file, and exit with its status", Follow);
  AddJob(follow, options->job);
  tree.AddChoice(follow, "--to", options->to, "TRACKER", "csv, mlflow or wandb", {"csv", "mlflow", "wandb"})
      ->required();
  AddValue(follow, "--out", options->out, "FOLDER", "Folder to write to (default: the job's name)");
  AddValue(follow, "--project", options->project, "NAME",
           "Project of wandb, or experiment of mlflow (default tandem)");
  follow->add_flag("--offline", options->offline,
                   "Use no network: mlflow writes FOLDER/mlflow.db, wandb FOLDER/wandb");
  AddValue(follow, "--norms-every", options->norms_every, "STEPS",
           "Write norms of parameters every so many steps (default 100; 0: never)")
      ->check(AtLeast(0));
}

// Adds `data`. All words behind it, even --help, go to the program that it runs.
void AddData(CommandTree& tree) {
  auto [data, options] =
      tree.Add<DataOptions>("data", "Prepare, inspect or check token files; see tandem data --help", Data);
  data->fallthrough(false)->prefix_command()->set_help_flag();
  data->parse_complete_callback([data = data, options = options] { options->words = data->remaining(); });
}

// Adds the commands about the service and this machine.
void AddService(CommandTree& tree) {
  auto [top, top_options] = tree.Add<TopOptions>("top", "Show jobs and workers, live, until Ctrl-C", Top);
  top->add_flag("--once", top_options->once,
                "Print once and exit; the default if standard output is not a terminal");

  auto [health, health_options] =
      tree.Add<HealthOptions>("health", "Check that the controller serves", Health);
  health->footer(
      "Exits with 0, or with 1 (it can store nothing), 5 (denied), 6 (unreachable) or 7 (timeout).");
  AddTimeout(health, health_options->timeout, "Give up after this time, with exit code 7 (default 2s)");

  tree.Add<SignInOptions>("sign-in",
                          "Print an address that signs a browser in to the controller's page, once", SignIn);

  auto [doctor, doctor_options] = tree.Add<DoctorOptions>(
      "doctor", "Check this machine: programs, driver, NCCL, ports, clock, disk, controller", Doctor);
  AddValue(doctor, "--shared", doctor_options->folders, "FOLDER",
           "Also check this folder of data or checkpoints that all workers share; may be repeated")
      ->allow_extra_args(false);
  tree.AddFormat(doctor, doctor_options->format, {"table", "json"});

  auto [completion, completion_options] =
      tree.Add<CompletionOptions>("completion", "Print the completion script for a shell", Completion);
  tree.AddChoice(completion, "SHELL", completion_options->shell, "", "bash, zsh or fish",
                 {"bash", "zsh", "fish"})
      ->required();
  completion->footer("For the current shell only: source <(tandem completion bash)");
}

void AddCerts(CommandTree& tree) {
  CLI::App* certs = tree.AddFamily("certs", "Make the certificates of a cluster");
  auto [init, init_options] = tree.Add<CertsOptions>(
      "init", "Make a certificate authority (CA), and certificates that it signs", CertsInit, certs);
  auto [issue, issue_options] = tree.Add<CertsOptions>(
      "issue", "Make more certificates, signed by the CA that init made", CertsIssue, certs);
  for (const auto& [app, options] : {std::pair(init, init_options), std::pair(issue, issue_options)}) {
    AddValue(app, "--dir", options->folder, "FOLDER", "Folder of the certificates and keys")->required();
    AddValue(app, "--host", options->hosts, "NAME",
             "Certificate for the controller: its DNS names and IP addresses");
    AddValue(app, "--worker", options->workers, "ID",
             "Certificate for the worker with this --id; pool-* is for every --id that begins with pool-");
    AddValue(app, "--user", options->users, "NAME", "Certificate for this user");
    AddValue(app, "--admin", options->admins, "NAME",
             "Certificate for this administrator, who may act for every user");
    AddValue(app, "--days", options->days, "DAYS", "Valid for this long (default 365)");
    options->domain = tls::kDefaultDomain;
    AddValue(app, "--domain", options->domain, "DOMAIN",
             "The controller's --tls-domain (default tandem.local)");
  }
  issue->add_flag("--renew", issue_options->renew, "Replace existing certificates");
  auto [show, show_options] =
      tree.Add<CertsShowOptions>("show", "Show the names and the validity of certificates", CertsShow, certs);
  AddValue(show, "FILE", show_options->files, "", "Certificates, PEM")->required();
}

void AddContexts(CommandTree& tree) {
  CLI::App* contexts = tree.AddFamily("context", "Manage the clusters in ~/.config/tandem/config.yaml");
  auto [list, list_options] =
      tree.Add<GetOptions>("list", "List the clusters and mark the current one", ContextList, contexts);
  tree.AddFormat(list, list_options->format, {"table", "name"});
  const auto add = [&](const char* word, const char* description, auto function) {
    auto [app, options] = tree.Add<ContextOptions>(word, description, function, contexts);
    AddValue(app, "NAME", options->name, "", "Name of the cluster")->required();
    return app;
  };
  add("use", "Make a cluster the current one; commands then connect to it", ContextUse);
  add("set", "Add or change a cluster: --addr, --tls-ca, --tls-cert, --tls-key, --tls-server-name",
      ContextSet)
      ->footer("The first cluster becomes the current one.");
  add("remove", "Remove a cluster", ContextRemove);
}

void AddGroups(CommandTree& tree) {
  auto [groups, options] =
      tree.Add<GroupsOptions>("groups", "Show the process groups of a job, or of any grid of ranks", Groups);
  CLI::Option* file =
      AddValue(groups, "-f,--file", options->file, "FILE", "Job file, YAML or JSON; - is standard input");
  parallel::GridSizes& sizes = options->sizes;
  const auto size = [&, app = groups](const char* flag, int& value, const char* description) {
    app->add_option(flag, value, description)->check(AtLeast(1))->excludes(file)->type_name("N");
  };
  size("--world-size", sizes.world, "Number of ranks");
  size("--tensor", sizes.tensor, "Tensor-parallel ranks (default 1)");
  size("--pipeline", sizes.pipeline, "Pipeline stages (default 1)");
  size("--context", sizes.context, "Context-parallel ranks (default 1)");
  size("--expert", sizes.expert, "Expert-parallel ranks (default 1)");
  size("--expert-tensor", sizes.expert_tensor, "Tensor-parallel ranks of an expert (default: --tensor)");
  size("--replicas", sizes.replicas, "Replicas: the outer size of HSDP (default 1)");
  size("--virtual-pipeline", sizes.virtual_pipeline,
       "Model chunks that a rank interleaves; needs --pipeline (default 1)");
  AddValue(groups, "--context-levels", sizes.context_levels, "N,N,...",
           "Sizes of a hierarchical split of the context groups, nearest ranks first")
      ->delimiter(',')
      ->check(AtLeast(1))
      ->excludes(file);
  AddValue(groups, "--order", sizes.order, "ORDER",
           "Axes of the grid, the fastest first (default tp-cp-ep-dp-pp)")
      ->excludes(file);
  AddValue(groups, "--rank-offset", sizes.rank_offset, "N", "The first rank (default 0)")
      ->check(AtLeast(0))
      ->excludes(file);
  groups
      ->add_flag("--separate-all-gather", sizes.separate_all_gather,
                 "Show also the cloned groups in which jobs gather parameters")
      ->excludes(file);
  AddValue(groups, "NAME", options->names, "", "List every group of these names");
  tree.AddFormat(groups, options->format, {"table", "json"});
}

void AddFiles(CommandTree& tree) {
  auto [validate, validate_options] =
      tree.Add<JobSource>("validate", "Check a job file; nothing is submitted", Validate);
  AddJobFile(validate, *validate_options);

  auto [plan, plan_options] =
      tree.Add<PlanOptions>("plan", "Show time, memory and step program of a job before it runs", Plan);
  AddJobFile(plan, *plan_options);
  AddValue(plan, "--profile", plan_options->profile, "NAME|FILE",
           "Device: cpu, h100, h200, or a file that tandem profile wrote (default cpu, whatever "
           "resources.device is)");
  plan->add_option_function<std::string>(
          "--compare", [options = &*plan_options](const std::string& text) { options->compare = text; },
          "Also plan other values of one field: prefetch=0,1,2, or accumulation=1,2,4; or other "
          "schedules: sequential,overlap,overlap+delay")
      ->type_name("FIELD=VALUES");
  AddValue(plan, "--trace", plan_options->trace, "FILE", "Write the timeline for Perfetto (ui.perfetto.dev)");
  plan->add_flag("--program", plan_options->program,
                 "Print the programs, buffer by buffer and instruction by instruction");
  tree.AddFormat(plan, plan_options->format, {"table", "json"});

  AddGroups(tree);
  AddData(tree);
}

}  // namespace

CommandTree::CommandTree(Invocation& invocation) : invocation_(invocation) {
  app_.require_subcommand(1);
  app_.set_help_flag("-h,--help", "Show help and exit");
  app_.set_version_flag("--version", platform::BuildVersion(), "Show the version of this program and exit");
  AddTarget(&app_, invocation.target);
  app_.fallthrough();  // options declared so far may also follow the command
  for (void (*const add)(CommandTree&) :
       {AddLocal, AddJobs, AddGet, AddDescribe, AddOutput, AddProfile, AddReports, AddFollow, AddExport,
        AddFiles, AddService, AddCerts, AddContexts}) {
    add(*this);
  }
  Add<int>(
      "version", "Show the builds of this program and of the controller",
      +[](Context& context, Client& client, const int&) { return Version(context, client); });
  app_.footer(kFooter);  // last: commands inherit a footer that exists when they are added
}

}  // namespace tandem::cli
