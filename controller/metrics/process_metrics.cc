// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "controller/metrics/metrics.h"

namespace tandem::controller {
namespace {

void AddProcess(const char* name, const char* help, prometheus::MetricType type, std::optional<double> value,
                std::vector<prometheus::MetricFamily>& out) {
  if (!value.has_value()) {
    return;
  }
  prometheus::MetricFamily& family = out.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
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

}  // namespace

void AppendProcessMetrics(std::vector<prometheus::MetricFamily>& out) {
  using prometheus::MetricType;
  // proc(5): the name in parentheses may hold anything; what follows it begins with field 3.
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

  AddProcess("process_cpu_seconds_total", "Processor time, user and system.", MetricType::Counter,
             user && system ? std::optional((*user + *system) * tick) : std::nullopt, out);
  AddProcess("process_resident_memory_bytes", "Memory in use.", MetricType::Gauge,
             scaled(field(24), static_cast<double>(sysconf(_SC_PAGESIZE))), out);
  AddProcess("process_virtual_memory_bytes", "Address space in use.", MetricType::Gauge, field(23), out);
  AddProcess("process_open_fds", "Open file descriptors.", MetricType::Gauge, CountDescriptors(), out);
  AddProcess("process_max_fds", "Limit of open file descriptors.", MetricType::Gauge,
             limited ? std::optional(static_cast<double>(limit.rlim_cur)) : std::nullopt, out);
  AddProcess("process_threads", "Threads.", MetricType::Gauge, field(20), out);
  AddProcess("process_start_time_seconds", "Start of the process, in seconds since 1970.", MetricType::Gauge,
             started && boot ? std::optional(*started + *boot) : std::nullopt, out);
}

}  // namespace tandem::controller
