// report.cpp - what an engine tells about itself: counters of backends, and all of
// them as Prometheus text.
#include <mori/io_types.h>

#include <iterator>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

// A label's value: quoted, with what Prometheus wants escaped.
std::string label(std::string_view value) {
  std::string out = "\"";
  for (const char each : value) {
    if (each == '\\' || each == '"') out += '\\';
    if (each == '\n')
      out += "\\n";
    else
      out += each;
  }
  return out + '"';
}

struct family {
  const char* name;
  const char* type;
  const char* help;
  uint64_t mori_io_stats::* value;
};

constexpr family families[] = {
    {"mori_io_transfers_total", "counter", "Transfers submitted.", &mori_io_stats::transfer_count},
    {"mori_io_successes_total", "counter", "Transfers that succeeded.",
     &mori_io_stats::success_count},
    {"mori_io_failures_total", "counter", "Transfers that failed.", &mori_io_stats::failure_count},
    {"mori_io_cancels_total", "counter", "Transfers that were cancelled.",
     &mori_io_stats::cancel_count},
    {"mori_io_retries_total", "counter", "Replays after a lost connection.",
     &mori_io_stats::retry_count},
    {"mori_io_failovers_total", "counter", "Transfers that another backend took over.",
     &mori_io_stats::failover_count},
    {"mori_io_read_bytes_total", "counter", "Bytes read.", &mori_io_stats::read_bytes},
    {"mori_io_written_bytes_total", "counter", "Bytes written.", &mori_io_stats::written_bytes},
    {"mori_io_latency_max_ns", "gauge", "Longest transfer.", &mori_io_stats::latency_max_ns},
};

}  // namespace

base::result<mori_io_stats> engine::backend_stats(int32_t backend) {
  if (backend <= MORI_IO_BACKEND_AUTO || backend > MORI_IO_BACKEND_FABRIC)
    return base::fail(MORI_E_INVALID, "backend {} is none of XGMI, RDMA, TCP, FABRIC", backend);
  MORI_CHECK(check_alive());
  const auto index = static_cast<size_t>(backend);
  mori_io_stats out{};
  const section held(*this);
  counted_[index].write_to(out);
  out.backend = backend;
  out.is_alive = backend == MORI_IO_BACKEND_TCP ? has_tcp_ : direct_[index].made != nullptr;
  // The target takes no part in what a direct backend moves, so it cannot tell one from another.
  if (backend == MORI_IO_BACKEND_TCP || backend == MORI_IO_BACKEND_XGMI) {
    out.inbound_count = inbox_.received_count(backend != MORI_IO_BACKEND_TCP);
    out.inbound_dropped_count = inbox_.dropped_count(backend != MORI_IO_BACKEND_TCP);
  }
  const std::string& reason = reasons_[index];
  std::snprintf(out.reason, sizeof out.reason, "%s",
                reason.empty() ? "was not created" : reason.c_str());
  return out;
}

std::string engine::metrics() {
  std::string out;
  const std::string engine_label = label(settings_.key);
  std::array<mori_io_stats, backend_count> all{};
  for (int32_t each = MORI_IO_BACKEND_XGMI; each <= MORI_IO_BACKEND_TCP; ++each)
    if (auto stats = backend_stats(each)) all[static_cast<size_t>(each)] = *stats;
  const auto header = [&](const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  for (const family& each : families) {
    header(each.name, each.type, each.help);
    for (const mori_io_stats& of : all)
      if (of.backend != 0)
        fmt::format_to(std::back_inserter(out), "{}{{engine={},backend=\"{}\"}} {}\n", each.name,
                       engine_label, backend_name(of.backend), of.*each.value);
  }
  header("mori_io_latency_ns", "summary", "Submission to completion, of successful transfers.");
  for (const mori_io_stats& of : all) {
    if (of.backend == 0) continue;
    for (const auto& [part, value] :
         {std::pair("0.5", of.latency_p50_ns), std::pair("0.9", of.latency_p90_ns),
          std::pair("0.99", of.latency_p99_ns)})
      fmt::format_to(std::back_inserter(out),
                     "mori_io_latency_ns{{engine={},backend=\"{}\",quantile=\"{}\"}} {}\n",
                     engine_label, backend_name(of.backend), part, value);
  }
  const auto single = [&](const char* name, const char* type, const char* help, uint64_t value) {
    header(name, type, help);
    fmt::format_to(std::back_inserter(out), "{}{{engine={}}} {}\n", name, engine_label, value);
  };
  single("mori_io_in_flight", "gauge", "Transfers in flight.", in_flight_.load());
  single("mori_io_inbound_total", "counter", "Notifications received.",
         inbox_.received_count(false) + inbox_.received_count(true));
  single("mori_io_inbound_dropped_total", "counter", "Notifications dropped, never taken.",
         inbox_.dropped_count(false) + inbox_.dropped_count(true));
  {
    const std::shared_lock guard(regions_lock_);
    single("mori_io_regions", "gauge", "Registered regions.", regions_.size());
  }
  return out;
}

}  // namespace mori::io_core
