// device.cppm - the headers of mori-device, as they are on the host, as the module mori.device: the
// device language layer and the runtime that launches. The headers are the source of truth; this
// unit only exports them and attaches nothing to the module. GPU compilers cannot import: kernels
// include.
module;
#include <mori/device/atomic.hpp>
#include <mori/device/atomic_host.hpp>
#include <mori/device/convert.hpp>
#include <mori/device/copy.hpp>
#include <mori/device/core.hpp>
#include <mori/device/gpu.hpp>
#include <mori/device/gpu_memory.hpp>
#include <mori/device/grid.hpp>
#include <mori/device/group.hpp>
#include <mori/device/kernel.hpp>
#include <mori/device/launch.hpp>
#include <mori/device/runtime.hpp>
#include <mori/device/wait.hpp>

export module mori.device;

export namespace mori::device {
using mori::device::address;
using mori::device::address_of;
using mori::device::address_range;
using mori::device::atomic_size;
using mori::device::backend_name;
using mori::device::bfloat16;
using mori::device::bit_cast;
using mori::device::block;
using mori::device::ceil_div;
using mori::device::choose_host_isa;
using mori::device::compare_exchange;
using mori::device::copy;
using mori::device::copy_streaming;
using mori::device::copy_to_many;
using mori::device::device_buffer;
using mori::device::device_image;
using mori::device::doorbell;
using mori::device::exchange;
using mori::device::failure_order;
using mori::device::fault_record;
using mori::device::fence;
using mori::device::fetch_add;
using mori::device::fetch_and;
using mori::device::fetch_or;
using mori::device::fetch_xor;
using mori::device::float16;
using mori::device::float8_e4m3fn;
using mori::device::float8_e4m3fnuz;
using mori::device::float8_e5m2;
using mori::device::from_float;
using mori::device::gpu;
using mori::device::gpu_facts;
using mori::device::gpu_of_context;
using mori::device::grid;
using mori::device::group_wait_until;
using mori::device::has_left;
using mori::device::host_isa;
using mori::device::host_isa_count;
using mori::device::host_isa_name;
using mori::device::i16;
using mori::device::i32;
using mori::device::i64;
using mori::device::i8;
using mori::device::ipc_handle;
using mori::device::is_ended;
using mori::device::is_ended_by_anyone;
using mori::device::kernel;
using mori::device::launch_options;
using mori::device::load;
using mori::device::load_constant;
using mori::device::mapped_memory;
using mori::device::max;
using mori::device::min;
using mori::device::one_lane;
using mori::device::order;
using mori::device::own_stream;
using mori::device::pinned_buffer;
using mori::device::pointer;
using mori::device::prefetch_beyond;
using mori::device::probe;
using mori::device::publish;
using mori::device::record_fault;
using mori::device::ring_doorbell;
using mori::device::runtime;
using mori::device::runtime_options;
using mori::device::same_type;
using mori::device::scan_result;
using mori::device::scope;
using mori::device::store;
using mori::device::store_signal;
using mori::device::to_float;
using mori::device::u16;
using mori::device::u32;
using mori::device::u64;
using mori::device::u8;
using mori::device::uptr;
using mori::device::usz;
using mori::device::viability;
using mori::device::wait_limits;
using mori::device::wait_result;
using mori::device::wait_slowly;
using mori::device::wait_subject;
using mori::device::wait_until;
using mori::device::wake_thread;
using mori::device::wave;
using mori::device::word_of_size;
}  // namespace mori::device
export namespace mori::device::convert {
using mori::device::convert::infinity;
using mori::device::convert::narrow;
using mori::device::convert::narrow_magnitude;
using mori::device::convert::sign_mask;
using mori::device::convert::widen_magnitude;
}  // namespace mori::device::convert
