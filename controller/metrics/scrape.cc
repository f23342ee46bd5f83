// SPDX-License-Identifier: Apache-2.0
// Converts what Metrics has recorded to Prometheus' metric families.
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "controller/metrics/metrics.h"
#include "platform/build_info.h"
#include "proto/names.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

using prometheus::MetricFamily;
constexpr auto kGauge = prometheus::MetricType::Gauge;
constexpr auto kCounter = prometheus::MetricType::Counter;
constexpr auto kHistogram = prometheus::MetricType::Histogram;

// Adds a family to `out`.
MetricFamily& AddFamily(prometheus::MetricType type, const char* name, const char* help,
                        std::vector<MetricFamily>& out) {
  return out.emplace_back(MetricFamily{name, help, type, {}});
}

void Add(MetricFamily& family, double value, Labels labels = {}) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  (family.type == kCounter ? metric.counter.value : metric.gauge.value) = value;
}

void Add(MetricFamily& family, const prometheus::Histogram& histogram, Labels labels = {}) {
  family.metric.push_back(histogram.Collect());
  family.metric.back().label = std::move(labels);
}

// Adds a family with a value for each job for which value(kept) returns one (std::optional).
template <typename Kept, typename Value>
void AddPerJob(prometheus::MetricType type, const char* name, const char* help,
               const std::map<std::string, Kept>& jobs, const Value& value, std::vector<MetricFamily>& out) {
  MetricFamily& family = AddFamily(type, name, help, out);
  for (const auto& [job, kept] : jobs) {
    if (const std::optional<double> number = value(kept)) {
      Add(family, *number, {{"job_name", job}});
    }
  }
}

// Labels of "/tandem.v1.Jobs/Submit", named as go-grpc-prometheus does.
Labels MethodLabels(const std::string& method) {
  const std::vector<std::string> parts = absl::StrSplit(method, '/');
  return {{"grpc_service", parts.size() > 2 ? parts[1] : ""},
          {"grpc_method", parts.size() > 2 ? parts[2] : method}};
}

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<double> Number(const std::vector<std::string>& words, size_t index) {
  double value = 0;
  return index < words.size() && absl::SimpleAtod(words[index], &value) ? std::optional(value) : std::nullopt;
}

// Seconds since 1970 at which the machine was started.
std::optional<double> BootTime() {
  for (const auto line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "btime") {
      return Number(words, 1);
    }
  }
  return std::nullopt;
}

std::optional<double> CountDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator begin("/proc/self/fd", error);
  return error ? std::nullopt
               : std::optional<double>(std::distance(begin, std::filesystem::directory_iterator()));
}

// Adds the metrics of this process that Prometheus' own client libraries have, under the same names. They are
// read from /proc at every call; what cannot be read is left out.
void AppendProcessMetrics(std::vector<MetricFamily>& out) {
  const auto add = [&out](prometheus::MetricType type, const char* name, const char* help,
                          std::optional<double> value) {
    if (value.has_value()) {
      Add(AddFamily(type, name, help, out), *value);
    }
  };
  // The name in parentheses may contain anything (proc(5)); field 3 begins after the last parenthesis.
  const std::string stat = ReadAll("/proc/self/stat");
  const size_t name_end = stat.rfind(") ");
  const std::vector<std::string> words =
      absl::StrSplit(name_end == std::string::npos ? "" : stat.substr(name_end + 2), ' ');
  const auto field = [&](size_t number) { return Number(words, number - 3); };
  const auto scaled = [](std::optional<double> value, double unit) {
    return value.has_value() ? std::optional(*value * unit) : std::nullopt;
  };
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  const std::optional<double> user = field(14);
  const std::optional<double> system = field(15);
  const std::optional<double> started = scaled(field(22), tick);
  const std::optional<double> boot = BootTime();
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_NOFILE, &limit) == 0;

  add(kCounter, "process_cpu_seconds_total", "Processor time, user and system.",
      user && system ? std::optional((*user + *system) * tick) : std::nullopt);
  add(kGauge, "process_resident_memory_bytes", "Memory in use.",
      scaled(field(24), static_cast<double>(sysconf(_SC_PAGESIZE))));
  add(kGauge, "process_virtual_memory_bytes", "Address space in use.", field(23));
  add(kGauge, "process_open_fds", "Open file descriptors.", CountDescriptors());
  add(kGauge, "process_max_fds", "Limit of open file descriptors.",
      limited ? std::optional(static_cast<double>(limit.rlim_cur)) : std::nullopt);
  add(kGauge, "process_threads", "Threads.", field(20));
  add(kGauge, "process_start_time_seconds", "Start of the process, in seconds since 1970.",
      started && boot ? std::optional(*started + *boot) : std::nullopt);
}

}  // namespace

std::string MetricsText(const prometheus::Collectable& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

std::vector<MetricFamily> Metrics::Collect() const {
  std::vector<MetricFamily> out;
  std::vector<v1::Job> timed;
  // Read before the lock, which every call and decision takes, because /proc has a file for each descriptor.
  const std::vector<std::string> build = absl::StrSplit(platform::BuildVersion(), absl::MaxSplits('+', 1));
  Add(AddFamily(kGauge, "tandem_build_info", "Version and commit of this process.", out), 1,
      {{"version", build[0]}, {"commit", build.size() > 1 ? build[1] : ""}, {"role", "controller"}});
  AppendProcessMetrics(out);
  {
    const absl::MutexLock lock(&mu_);
    CollectOwn(out);
    for (const auto& [name, known] : known_) {
      timed.push_back(known.job);
    }
  }
  CollectTimes(timed, out);  // outside the lock, because it waits for a disk
  return out;
}

void Metrics::CollectOwn(std::vector<MetricFamily>& out) const {
  MetricFamily& certificate =
      AddFamily(kGauge, "tandem_tls_cert_not_after_timestamp_seconds",
                "When the controller's own certificate expires; nothing without TLS.", out);
  if (certificate_ends_.has_value()) {
    Add(certificate, static_cast<double>(absl::ToUnixSeconds(*certificate_ends_)));
  }

  MetricFamily& jobs = AddFamily(kGauge, "tandem_controller_jobs", "Live jobs by state.", out);
  for (const v1::JobState state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING,
                                   v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING}) {
    const auto it = jobs_.find(state);
    Add(jobs, it == jobs_.end() ? 0 : static_cast<double>(it->second), {{"state", proto::ValueName(state)}});
  }
  Add(AddFamily(kGauge, "tandem_controller_jobs_beyond_capacity",
                "Queued jobs that ask for more slots than all workers that have registered have.", out),
      static_cast<double>(beyond_capacity_));
  MetricFamily& workers =
      AddFamily(kGauge, "tandem_controller_workers",
                "Workers seen since the start that have not left as they were asked to, by state.", out);
  Add(workers, static_cast<double>(schedulable_), {{"state", "schedulable"}});
  Add(workers, static_cast<double>(connected_ - schedulable_), {{"state", "connected_not_schedulable"}});
  Add(workers, static_cast<double>(away_), {{"state", "away"}});
  MetricFamily& heartbeats =
      AddFamily(kGauge, "tandem_worker_heartbeat_age_seconds", "Time since a worker was last heard of.", out);
  for (const auto& [worker, seen] : seen_) {
    Add(heartbeats, absl::ToDoubleSeconds(clock_.Now() - seen), {{"worker", worker}});
  }
  Add(AddFamily(kHistogram, "tandem_controller_queue_wait_seconds",
                "Time of jobs from their submission until they got their slots.", out),
      queue_wait_seconds);
  Add(AddFamily(kGauge, "tandem_controller_event_log_seq", "Number of the last event.", out),
      static_cast<double>(last_seq_));
  Add(AddFamily(kHistogram, "tandem_controller_store_commit_seconds", "Time of one commit to the store.",
                out),
      commit_seconds);
  Add(AddFamily(kCounter, "tandem_controller_store_no_room_total",
                "Commits to the store that failed because its disk was full.", out),
      refused_commits.Value());

  CollectRpcs(out);
  Prune();
  CollectTraining(out);
  CollectProgress(out);
  CollectCheckpoints(out);
}

void Metrics::CollectRpcs(std::vector<MetricFamily>& out) const {
  MetricFamily& started = AddFamily(kCounter, "grpc_server_started_total", "RPCs begun, by method.", out);
  for (const auto& [method, count] : started_) {
    Add(started, static_cast<double>(count), MethodLabels(method));
  }
  MetricFamily& handled =
      AddFamily(kCounter, "grpc_server_handled_total", "RPCs ended, by method and code.", out);
  for (const auto& [key, count] : handled_) {
    Labels labels = MethodLabels(key.first);
    labels.push_back({"grpc_code", key.second});
    Add(handled, static_cast<double>(count), std::move(labels));
  }
  MetricFamily& handling = AddFamily(kHistogram, "grpc_server_handling_seconds",
                                     "Time of RPCs until their status was sent, by method.", out);
  for (const auto& [method, took] : took_) {
    Add(handling, took, MethodLabels(method));
  }
}

void Metrics::CollectProgress(std::vector<MetricFamily>& out) const {
  // Jobs that have ended have no progress.
  const std::map<std::string, v1::Progress> jobs = progress_.ByName();
  AddPerJob(
      kGauge, "tandem_train_progress_age_seconds",
      "Time since the rank that is behind the others last moved.", jobs,
      [](const v1::Progress& progress) { return absl::ToDoubleSeconds(proto::FromProto(progress.age())); },
      out);
  AddPerJob(
      kGauge, "tandem_train_rank_behind", "Number of the rank that is behind the others.", jobs,
      [](const v1::Progress& progress) { return progress.rank(); }, out);
  AddPerJob(
      kGauge, "tandem_train_stalled", "1 while that rank is stopped, or takes much longer than a step.", jobs,
      [](const v1::Progress& progress) { return progress.stalled() ? 1 : 0; }, out);
}

void Metrics::CollectTraining(std::vector<MetricFamily>& out) const {
  const auto add =
      [&](prometheus::MetricType type, const char* name, const char* help, const auto& value)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { AddPerJob(type, name, help, training_, value, out); };
  add(kGauge, "tandem_train_step", "Last optimizer step.", [](const Training& t) { return t.last.step(); });
  add(kGauge, "tandem_train_loss", "Mean loss of the last step, nats a token.",
      [](const Training& t) { return t.last.loss(); });
  add(kGauge, "tandem_train_grad_norm", "Gradient norm of the last step, before clipping.",
      [](const Training& t) { return t.last.grad_norm(); });
  add(kGauge, "tandem_train_learning_rate", "Learning rate of the last step.",
      [](const Training& t) { return t.last.learning_rate(); });
  add(kCounter, "tandem_train_tokens_total", "Tokens trained on.",
      [](const Training& t) { return t.tokens; });
  MetricFamily& samples = AddFamily(kCounter, "tandem_train_samples_total", "Sequences trained on.", out);
  for (const auto& [job, training] : training_) {
    const auto known = known_.find(job);
    if (known != known_.end() && known->second.job.id() == training.job_id &&
        known->second.sequence_length > 0) {
      Add(samples, training.tokens / static_cast<double>(known->second.sequence_length), {{"job_name", job}});
    }
  }
  add(kCounter, "tandem_train_nonfinite_steps_total", "Steps with gradients that were not finite.",
      [](const Training& t) { return t.nonfinite_steps; });
  add(kCounter, "tandem_train_spikes_total", "Steps whose gradient norm was a spike, applied or not.",
      [](const Training& t) { return t.spikes; });
  MetricFamily& seconds =
      AddFamily(kHistogram, "tandem_train_step_seconds", "Wall time of optimizer steps.", out);
  for (const auto& [job, training] : training_) {
    Add(seconds, training.seconds, {{"job_name", job}});
  }
  CollectNeeds(out);
  struct Scalar {
    const char* metric;
    const char* scalar;  // name of a scalar of StepReport
    const char* help;
  };
  for (const Scalar& each : std::initializer_list<Scalar>{
           {"tandem_train_mfu_ratio", "model_flops_utilization",
            "Model FLOPs of the last step over what the devices' vendor says they could do in its time; only "
            "of devices whose figure is known."},
           {"tandem_train_moe_balance_loss", "moe_balance_loss",
            "Routers' balance loss of the last step, mean over sparse layers: 1 where the load is even."},
           {"tandem_train_moe_z_loss", "moe_z_loss",
            "Routers' z loss of the last step, mean over sparse layers."},
           {"tandem_train_moe_largest_load", "moe_largest_load",
            "Largest number of tokens of an expert in the last step, relative to the mean of its layer."},
           {"tandem_train_moe_idle_experts", "moe_idle",
            "Experts without tokens in the last step, in all layers."},
           {"tandem_train_moe_dropped_tokens", "moe_dropped",
            "Token choices in the last step that were dropped because the expert was full, in all layers."},
           {"tandem_train_moe_further_passes", "moe_further_passes",
            "Passes of ranks over their experts' rows in the last step beyond the first of a microbatch, in "
            "all layers: the router sent a rank more rows than it computes at a time."}}) {
    add(kGauge, each.metric, each.help, [&](const Training& t) {
      const auto found = t.last.scalars().find(each.scalar);
      return found == t.last.scalars().end() ? std::nullopt : std::optional<double>(found->second);
    });
  }
}

void Metrics::CollectTimes(const std::vector<v1::Job>& jobs, std::vector<MetricFamily>& out) const {
  if (!totals_) {
    return;
  }
  MetricFamily& family = AddFamily(
      kGauge, "tandem_train_time_seconds",
      "Where the time of a job has gone since its submission; stepping / all of it is the effective training "
      "time.",
      out);
  for (const v1::Job& job : jobs) {
    const v1::TimeAccount time = AccountTime(job, totals_(job.id()), clock_.Now());
    for (const auto& [part, seconds] :
         {std::pair("waiting", time.waiting()), std::pair("starting", time.starting()),
          std::pair("stepping", time.stepping()), std::pair("checkpoints", time.checkpoints()),
          std::pair("lost", time.lost()), std::pair("other", time.other())}) {
      Add(family, seconds, {{"job_name", job.name()}, {"part", part}});
    }
  }
}

void Metrics::CollectNeeds(std::vector<MetricFamily>& out) const {
  MetricFamily sent{"tandem_comm_bytes_total",
                    "Bytes that the ranks of a job sent to each other in optimizer steps, by purpose, as "
                    "counted from its program.",
                    kCounter,
                    {}};
  MetricFamily memory{
      "tandem_device_memory_bytes",
      "Memory when the ranks of a job were ready: arena, the most that one of them holds; used, by all "
      "processes on the fullest of their devices; total, of the smallest.",
      kGauge,
      {}};
  for (const auto& [job, training] : training_) {
    const auto known = known_.find(job);
    if (known == known_.end() || known->second.job.id() != training.job_id || known->second.needs.empty()) {
      continue;
    }
    std::map<std::string, double> all;
    for (const auto& [attempt, needs] : known->second.needs) {
      const auto steps = training.steps.find(attempt);
      for (const auto& [purpose, bytes] : needs.sent_bytes) {
        all[purpose] += steps == training.steps.end() ? 0 : bytes * steps->second;
      }
    }
    for (const auto& [purpose, bytes] : all) {
      Add(sent, bytes, {{"job_name", job}, {"op", purpose}});
    }
    const JobNeeds& newest = known->second.needs.rbegin()->second;
    for (const auto& [kind, bytes] :
         {std::pair("arena", newest.arena_bytes), std::pair("used", newest.used_bytes),
          std::pair("total", newest.total_bytes)}) {
      Add(memory, static_cast<double>(bytes), {{"job_name", job}, {"kind", kind}});
    }
  }
  out.push_back(std::move(sent));
  out.push_back(std::move(memory));
}

void Metrics::CollectCheckpoints(std::vector<MetricFamily>& out) const {
  const auto add = [&](prometheus::MetricType type, const char* name, const char* help,
                       const auto& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto of_known = [&](const Known& of) {
      return of.job.has_checkpoints() ? std::optional<double>(value(of.job.checkpoints())) : std::nullopt;
    };
    AddPerJob(type, name, help, known_, of_known, out);
  };
  using Record = v1::CheckpointRecord;
  add(kCounter, "tandem_checkpoint_saves_total", "Checkpoints that were saved.",
      [](const Record& r) { return r.saved(); });
  add(kCounter, "tandem_checkpoint_failures_total", "Checkpoints that could not be saved.",
      [](const Record& r) { return r.failed(); });
  add(kGauge, "tandem_checkpoint_failures_in_a_row",
      "Checkpoints that could not be saved since the last that was.",
      [](const Record& r) { return r.failed_in_a_row(); });
  add(kCounter, "tandem_checkpoint_bytes_total", "Bytes of the checkpoints that were saved.",
      [](const Record& r) { return r.bytes(); });
  add(kCounter, "tandem_checkpoint_seconds_total", "Wall time of the saves that succeeded.",
      [](const Record& r) { return r.seconds(); });
  add(kGauge, "tandem_checkpoint_last_step", "Step of the newest checkpoint that was saved.",
      [](const Record& r) { return r.last_step(); });
  add(kGauge, "tandem_checkpoint_last_success_timestamp_seconds",
      "When the newest checkpoint was saved; 0: never.", [](const Record& r) {
        return r.has_last_saved()
                   ? absl::ToDoubleSeconds(proto::FromProto(r.last_saved()) - absl::UnixEpoch())
                   : 0.0;
      });
}

}  // namespace tandem::controller
