#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace tandem::controller {

// What Prometheus' own client libraries report of the process that is scraped, under the names that they use:
// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes, process_open_fds,
// process_max_fds, process_threads, process_start_time_seconds. Read from /proc at every call; what cannot be
// read is left out.
void AppendProcessMetrics(std::vector<prometheus::MetricFamily>& out);

}  // namespace tandem::controller
