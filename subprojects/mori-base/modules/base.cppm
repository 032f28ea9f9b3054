// base.cppm - the headers of mori-base as the module mori.base, for code and tests that import. The
// headers are the source of truth; this unit only exports them and attaches nothing to the module.
// Macros (MORI_CHECK, MORI_TRY) do not travel through a module: result.hpp has them.
module;
#include <mori/base/boundary.hpp>
#include <mori/base/clock.hpp>
#include <mori/base/env.hpp>
#include <mori/base/handle.hpp>
#include <mori/base/log.hpp>
#include <mori/base/process.hpp>
#include <mori/base/quiet_signals.hpp>
#include <mori/base/result.hpp>
#include <mori/base/sanitizer.hpp>
#include <mori/base/unique_fd.hpp>

export module mori.base;

export namespace mori::base {
using mori::base::check_out;
using mori::base::check_struct;
using mori::base::close_in_child;
using mori::base::deadline;
using mori::base::env_bytes;
using mori::base::env_flag;
using mori::base::env_number;
using mori::base::env_text;
using mori::base::fail;
using mori::base::fail_os;
using mori::base::failure;
using mori::base::forget_in_child;
using mori::base::fork_generation;
using mori::base::guard;
using mori::base::handle_table;
using mori::base::hold_across_fork;
using mori::base::log;
using mori::base::log_enabled;
using mori::base::log_next;
using mori::base::log_queue_count;
using mori::base::log_set_level;
using mori::base::log_set_name;
using mori::base::log_write;
using mori::base::now_ns;
using mori::base::ns_per_ms;
using mori::base::ns_per_s;
using mori::base::ns_per_us;
using mori::base::parse_bytes;
using mori::base::quiet_signals;
using mori::base::read_struct;
using mori::base::read_struct_bytes;
using mori::base::report;
using mori::base::result;
using mori::base::status;
using mori::base::status_name;
using mori::base::under_tsan;
using mori::base::unique_fd;
using mori::base::write_struct;
using mori::base::write_struct_bytes;
}  // namespace mori::base
