#include <troupe/runtime/metrics/metric_family.hpp>

#include <array>

namespace troupe {

namespace {

using enum metric_kind;

constexpr std::array descriptions{
    metric_description{"troupe_build_info", gauge, "version,backend,driver,profile", "1",
                       "1; its labels say what this process runs."},
    metric_description{"troupe_start_time_seconds", gauge, "", "seconds", "When the runtime began, since the epoch."},
    metric_description{
        "troupe_poller_seconds_total", counter, "state", "seconds",
        "Time of the thread that sees completions: busy answering, or parked; the rest it looks and finds nothing."},
    metric_description{"troupe_world_phase", gauge, "world,phase", "1",
                       "1 for the phase that the world is in, 0 for the others."},
    metric_description{"troupe_world_epoch", gauge, "world", "1",
                       "How often the world has been formed: 1 until its first recovery."},
    metric_description{"troupe_world_start_time_seconds", gauge, "world", "seconds",
                       "When the world was formed first, since the epoch."},
    metric_description{"troupe_world_ranks", gauge, "world", "ranks", "Ranks of the world, of all its processes."},
    metric_description{"troupe_world_local_ranks", gauge, "world", "ranks", "Those of this process."},
    metric_description{"troupe_world_lost_ranks", gauge, "world", "ranks", "Ranks that the world goes on without."},
    metric_description{"troupe_world_faults_total", counter, "world,code", "faults",
                       "Faults of the world, by the code of their reason; of those that occurred."},
    metric_description{
        "troupe_world_recovery_seconds", histogram, "world,rung,result", "seconds",
        "Tries to come back from a fault, by the way they took and whether they did (ready) or not (failed)."},
    metric_description{"troupe_world_stragglers_total", counter, "world", "operations",
                       "Operations that some ranks had asked for and others not within limits.straggling."},
    metric_description{
        "troupe_world_pending_requests", gauge, "world", "requests",
        "Accepted and not answered, beyond the first of each lane: what limits.pending_operations bounds."},
    metric_description{"troupe_world_pending_bytes", gauge, "world", "bytes",
                       "That these name; only where limits.pending_bytes bounds them."},
    metric_description{"troupe_world_pending_limit", gauge, "world", "requests",
                       "limits.pending_operations; only where it is a bound."},
    metric_description{"troupe_world_lead", gauge, "world", "operations",
                       "Collectives that have reached the furthest rank and that the slowest has not finished."},
    metric_description{"troupe_world_retries_total", counter, "world,result", "operations",
                       "Operations marked retry_safe that met a fault: put_aside, of these run_again and given_up."},
    metric_description{"troupe_requests_total", counter, "world,rank,operation,size", "requests",
                       "Requests that have succeeded at a rank."},
    metric_description{"troupe_request_bytes_total", counter, "world,rank,operation,size", "bytes",
                       "Of the buffers that these named."},
    metric_description{"troupe_request_latency_seconds", histogram, "world,rank,operation,size", "seconds",
                       "From a request's acceptance until its completion was seen."},
    metric_description{"troupe_request_queue_seconds_total", counter, "world,rank,operation,size", "seconds",
                       "The part of these latencies until the request was in the GPU's queue."},
    metric_description{"troupe_request_failures_total", counter, "world,rank,code", "requests",
                       "Requests that a rank answered with an error, by its code."},
    metric_description{"troupe_launches_total", counter, "world,rank", "launches",
                       "Calls that put work into the GPU's queue."},
    metric_description{"troupe_launched_requests_total", counter, "world,rank", "requests",
                       "Requests in them; divided by the launches: the fusion factor."},
    metric_description{"troupe_rank_lead", gauge, "world,rank", "operations",
                       "Collectives that have reached the rank and that the slowest rank has not finished."},
    metric_description{"troupe_rank_queue", gauge, "world,rank", "operations",
                       "Collectives that have reached the rank and that it has not launched."},
};

} // namespace

std::string_view to_string(metric_kind kind) noexcept {
  switch (kind) {
    case counter: return "counter";
    case gauge: return "gauge";
    case histogram: return "histogram";
  }
  return {};
}

std::span<const metric_description> all_metrics() noexcept {
  return descriptions;
}

} // namespace troupe
