#include "controller/metrics.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "controller/process_metrics.h"
#include "platform/build_info.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kKeepAfterEnd = absl::Minutes(5);
constexpr size_t kMostEndedJobs = 50;

using Labels = std::vector<prometheus::ClientMetric::Label>;

prometheus::MetricFamily Family(const char* name, const char* help, prometheus::MetricType type) {
  prometheus::MetricFamily out;
  out.name = name;
  out.help = help;
  out.type = type;
  return out;
}

void Add(prometheus::MetricFamily& family, double value, Labels labels = {}) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  if (family.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

// "/tandem.v1.Jobs/Submit" as go-grpc-prometheus labels it.
Labels MethodLabels(const std::string& method) {
  const std::vector<std::string> parts = absl::StrSplit(method, '/');
  return {{"grpc_service", parts.size() > 2 ? parts[1] : ""},
          {"grpc_method", parts.size() > 2 ? parts[2] : method}};
}

}  // namespace

void HistogramCounts::Observe(double value) {
  size_t i = 0;
  while (i < bounds_.size() && value > bounds_[i]) {
    ++i;
  }
  ++counts_[i];
  sum_ += value;
}

prometheus::ClientMetric HistogramCounts::Metric() const {
  prometheus::ClientMetric out;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    cumulative += counts_[i];
    out.histogram.bucket.push_back(
        {cumulative, i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity()});
  }
  out.histogram.sample_count = cumulative;
  out.histogram.sample_sum = sum_;
  return out;
}

void Metrics::CommitSeconds(double seconds) {
  const absl::MutexLock lock(&mu_);
  commits_.Observe(seconds);
}

void Metrics::Report(const std::string& job_id, const std::string& job_name, const v1::StepReport& report) {
  const absl::MutexLock lock(&mu_);
  Training& training = training_[job_name];
  if (training.job_id != job_id) {
    training = Training{.job_id = job_id};
  }
  const bool again = report.attempt() == training.last.attempt() && report.step() <= training.last.step();
  if (again) {
    return;  // sent twice
  }
  training.last = report;
  training.last.clear_norms();
  training.tokens += static_cast<double>(report.tokens());
  training.nonfinite_steps += report.nonfinite() > 0 ? 1 : 0;
  training.seconds.Observe(report.seconds());
}

void Metrics::JobEnded(const v1::Job& job) {
  const absl::MutexLock lock(&mu_);
  const auto it = training_.find(job.name());
  if (it != training_.end() && it->second.job_id == job.id()) {
    it->second.ended = clock_.Now();
  }
  Prune();
}

void Metrics::Prune() const {
  const absl::Time now = clock_.Now();
  std::vector<std::pair<absl::Time, std::string>> ended;
  for (const auto& [name, training] : training_) {
    if (training.ended != absl::InfiniteFuture()) {
      ended.emplace_back(training.ended, name);
    }
  }
  std::sort(ended.rbegin(), ended.rend());  // newest first
  for (size_t i = 0; i < ended.size(); ++i) {
    if (i >= kMostEndedJobs || now - ended[i].first > kKeepAfterEnd) {
      training_.erase(ended[i].second);
    }
  }
}

void Metrics::CommitRefused() {
  const absl::MutexLock lock(&mu_);
  ++refused_commits_;
}

void Metrics::RpcStarted(const std::string& method) {
  const absl::MutexLock lock(&mu_);
  ++started_[method];
}

void Metrics::RpcHandled(const std::string& method, const std::string& code) {
  const absl::MutexLock lock(&mu_);
  ++handled_[{method, code}];
}

void Metrics::Look(const State& state) {
  const absl::MutexLock lock(&mu_);
  jobs_.clear();
  for (const auto& [id, entry] : state.jobs) {
    ++jobs_[entry.job.state()];
  }
  connected_ = schedulable_ = away_ = 0;
  for (const auto& [name, worker] : state.workers) {
    ++(worker.connected ? connected_ : away_);
    schedulable_ += WhyNotSchedulable(state, worker).empty() ? 1 : 0;
  }
  last_seq_ = state.last_seq;
}

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  using prometheus::MetricType;
  const absl::MutexLock lock(&mu_);
  std::vector<prometheus::MetricFamily> out;

  const std::vector<std::string> build = absl::StrSplit(platform::BuildVersion(), absl::MaxSplits('+', 1));
  out.push_back(Family("tandem_build_info", "Version and commit of this process.", MetricType::Gauge));
  Add(out.back(), 1,
      {{"version", build[0]}, {"commit", build.size() > 1 ? build[1] : ""}, {"role", "controller"}});

  AppendProcessMetrics(out);

  out.push_back(Family("tandem_controller_jobs", "Live jobs by state.", MetricType::Gauge));
  for (const v1::JobState state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING,
                                   v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING}) {
    const auto it = jobs_.find(state);
    Add(out.back(), it == jobs_.end() ? 0 : static_cast<double>(it->second), {{"state", StateName(state)}});
  }
  out.push_back(
      Family("tandem_controller_workers", "Workers seen since the start, by state.", MetricType::Gauge));
  Add(out.back(), static_cast<double>(schedulable_), {{"state", "schedulable"}});
  Add(out.back(), static_cast<double>(connected_ - schedulable_), {{"state", "connected_not_schedulable"}});
  Add(out.back(), static_cast<double>(away_), {{"state", "away"}});

  out.push_back(Family("tandem_controller_event_log_seq", "Number of the last event.", MetricType::Gauge));
  Add(out.back(), static_cast<double>(last_seq_));

  out.push_back(Family("tandem_controller_store_commit_seconds", "Time of one commit to the store.",
                       MetricType::Histogram));
  out.back().metric.push_back(commits_.Metric());

  out.push_back(Family("tandem_controller_store_no_room_total",
                       "Commits to the store for which there was no room.", MetricType::Counter));
  Add(out.back(), static_cast<double>(refused_commits_));

  out.push_back(Family("grpc_server_started_total", "RPCs begun, by method.", MetricType::Counter));
  for (const auto& [method, count] : started_) {
    Add(out.back(), static_cast<double>(count), MethodLabels(method));
  }
  out.push_back(Family("grpc_server_handled_total", "RPCs ended, by method and code.", MetricType::Counter));
  for (const auto& [key, count] : handled_) {
    Labels labels = MethodLabels(key.first);
    labels.push_back({"grpc_code", key.second});
    Add(out.back(), static_cast<double>(count), std::move(labels));
  }

  Prune();
  const auto per_job = [&](const char* name, const char* help, MetricType type, auto value)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                             prometheus::MetricFamily family = Family(name, help, type);
                             for (const auto& [job, training] : training_) {
                               Add(family, value(training), {{"job_name", job}});
                             }
                             out.push_back(std::move(family));
                           };
  per_job("tandem_train_step", "Last optimizer step.", MetricType::Gauge,
          [](const Training& t) { return static_cast<double>(t.last.step()); });
  per_job("tandem_train_loss", "Mean loss of the last step, nats a token.", MetricType::Gauge,
          [](const Training& t) { return t.last.loss(); });
  per_job("tandem_train_grad_norm", "Gradient norm of the last step, before clipping.", MetricType::Gauge,
          [](const Training& t) { return t.last.grad_norm(); });
  per_job("tandem_train_learning_rate", "Learning rate of the last step.", MetricType::Gauge,
          [](const Training& t) { return t.last.learning_rate(); });
  per_job("tandem_train_tokens_total", "Tokens trained on.", MetricType::Counter,
          [](const Training& t) { return t.tokens; });
  per_job("tandem_train_nonfinite_steps_total", "Steps with gradients that were not finite.",
          MetricType::Counter, [](const Training& t) { return t.nonfinite_steps; });
  out.push_back(Family("tandem_train_step_seconds", "Wall time of optimizer steps.", MetricType::Histogram));
  for (const auto& [job, training] : training_) {
    out.back().metric.push_back(training.seconds.Metric());
    out.back().metric.back().label = {{"job_name", job}};
  }
  return out;
}

}  // namespace tandem::controller
