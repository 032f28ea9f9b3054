// rust_client.rs - binds to the libraries from Rust by dlopen, with no crate. Two PEs, threads of
// this process, dispatch and combine what dlopen_client.c describes. The structs are the ones of
// this release: a later library accepts them by their struct_size.
//
// usage: rust_client LIBMORI_SHMEM.so LIBMORI_EP.so
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::{size_of, transmute_copy, zeroed};
use std::ptr::null_mut;

const PES: i32 = 2;
const TOKENS: usize = 2;
const HIDDEN: usize = 4;
const F32: i32 = 1;
const RTLD_NOW: c_int = 2;
const RTLD_GLOBAL: c_int = 256;

extern "C" {
    fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[repr(C)]
struct Error { struct_size: u64, status: i32, os_errno: i32, message: [c_char; 240] }
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId { bytes: [u8; 128] }
#[repr(C)]
struct Options {
    struct_size: u64, pe: i32, pe_count: i32, backend: i32, heap_mode: i32, heap_bytes: u64,
    bootstrap_timeout_ns: u64, wait_timeout_ns: u64, heartbeat_timeout_ns: u64, disable_p2p: i32,
    worker_count: i32,
}
#[repr(C)]
struct Config {
    struct_size: u64, kernel_type: i32, quant_type: i32, hidden_dim: u64,
    max_token_elem_bytes: u64, scale_dim: u64, scale_elem_bytes: u64, max_input_token_count: u64,
    expert_per_rank_count: u64, expert_per_token_count: u64, max_total_recv_token_count: u64,
    registered_input: i32, drop_invalid_experts: i32, gpu_per_node_count: i32, block_count: i32,
    warp_per_block_count: i32, rdma_block_count: i32, queue_pair_per_pe_count: i32,
    deterministic: i32, timeout_ns: u64,
}
#[repr(C)]
struct DispatchArgs {
    struct_size: u64, input: *const f32, weights: *const f32, scales: *const c_void,
    indices: *const i32, token_count: u64, hidden_dim: u64, dtype: i32, block_count: i32,
    warp_per_block_count: i32, rdma_block_count: i32, count_local_experts: i32, reserved: i32,
    stream: *mut c_void,
}
#[repr(C)]
struct DispatchResult {
    struct_size: u64, out: *const f32, weights: *mut f32, scales: *mut c_void, indices: *mut i32,
    recv_count: *mut i32, local_expert_count: *mut i32, capacity_count: u64,
    recv_token_count: u64, effective_block_count: i32, reserved: i32,
}
#[repr(C)]
struct CombineArgs {
    struct_size: u64, input: *const f32, weights: *const f32, indices: *const i32,
    token_count: u64, input_row_count: u64, hidden_dim: u64, dtype: i32, input_mode: i32,
    block_count: i32, warp_per_block_count: i32, rdma_block_count: i32, reserved: i32,
    stream: *mut c_void,
}
#[repr(C)]
struct CombineResult {
    struct_size: u64, out: *const f32, weights: *mut f32, effective_block_count: i32,
    reserved: i32,
}

/// A zeroed struct with its struct_size, which is the first field of each, set.
fn sized<T>() -> T {
    unsafe {
        let mut made: T = zeroed();
        *(&mut made as *mut T as *mut u64) = size_of::<T>() as u64;
        made
    }
}

#[derive(Clone, Copy)]
struct Library { ep: *mut c_void }
unsafe impl Send for Library {}

impl Library {
    fn open(shmem: &str, ep: &str) -> Library {
        let path = |name: &str| CString::new(name).unwrap();
        unsafe {
            // shmem first: ep needs it, and finds it loaded.
            assert!(!dlopen(path(shmem).as_ptr(), RTLD_NOW | RTLD_GLOBAL).is_null());
            let ep = dlopen(path(ep).as_ptr(), RTLD_NOW);
            assert!(!ep.is_null());
            Library { ep }
        }
    }

    /// F must be the function pointer type of that C function.
    unsafe fn get<F>(&self, name: &str) -> F {
        let symbol = dlsym(self.ep, CString::new(name).unwrap().as_ptr());
        assert!(!symbol.is_null(), "no symbol {name}");
        transmute_copy(&symbol)
    }

    fn check(&self, status: i32, error: &Error) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        unsafe {
            let name: extern "C" fn(i32) -> *const c_char = self.get("mori_shmem_status_name");
            let name = CStr::from_ptr(name(status)).to_string_lossy();
            let text = CStr::from_ptr(error.message.as_ptr()).to_string_lossy();
            Err(format!("{name}: {text}"))
        }
    }
}

type Create = extern "C" fn(*const UniqueId, *const Options, *mut *mut c_void, *mut Error) -> i32;
type EpCreate = extern "C" fn(*mut c_void, *const Config, *mut *mut c_void, *mut Error) -> i32;
type Dispatch =
    extern "C" fn(*mut c_void, *const DispatchArgs, *mut DispatchResult, *mut Error) -> i32;
type Combine =
    extern "C" fn(*mut c_void, *const CombineArgs, *mut CombineResult, *mut Error) -> i32;
type OnHandle = extern "C" fn(*mut c_void, *mut Error) -> i32;
type Destroy = extern "C" fn(*mut c_void);

unsafe fn exchange(lib: &Library, pe: i32, ep: *mut c_void) -> Result<(), String> {
    let mut error: Error = sized();
    let input: Vec<f32> =
        (0..TOKENS * HIDDEN).map(|i| (10 * pe) as f32 + (i / HIDDEN) as f32).collect();
    let indices: Vec<i32> = (0..TOKENS as i32).map(|token| (pe + token) % PES).collect();
    let mut send: DispatchArgs = sized();
    send.input = input.as_ptr();
    send.indices = indices.as_ptr();
    send.token_count = TOKENS as u64;
    send.dtype = F32;
    let mut received: DispatchResult = sized();
    let dispatch: Dispatch = lib.get("mori_ep_dispatch");
    lib.check(dispatch(ep, &send, &mut received, &mut error), &error)?;
    let count = received.recv_token_count as usize * HIDDEN;
    let outputs: Vec<f32> =
        (0..count).map(|i| *received.out.add(i) * (pe + 2) as f32).collect();
    let mut back: CombineArgs = sized();
    back.input = outputs.as_ptr();
    back.indices = indices.as_ptr();
    back.token_count = TOKENS as u64;
    back.input_row_count = received.recv_token_count;
    back.dtype = F32;
    let mut combined: CombineResult = sized();
    let combine: Combine = lib.get("mori_ep_combine");
    lib.check(combine(ep, &back, &mut combined, &mut error), &error)?;
    for (i, value) in input.iter().enumerate() {
        let got = *combined.out.add(i);
        if got != value * (indices[i / HIDDEN] + 2) as f32 {
            return Err(format!("value {i} is {got}"));
        }
    }
    Ok(())
}

unsafe fn run_pe(lib: &Library, id: UniqueId, pe: i32) -> Result<(), String> {
    let mut error: Error = sized();
    let mut options: Options = sized();
    options.pe = pe;
    options.pe_count = PES;
    options.heap_bytes = 1 << 20;
    let (mut shmem, mut ep) = (null_mut(), null_mut());
    let create: Create = lib.get("mori_shmem_create");
    lib.check(create(&id, &options, &mut shmem, &mut error), &error)?;
    let mut config: Config = sized();
    config.hidden_dim = HIDDEN as u64;
    config.max_input_token_count = TOKENS as u64;
    config.expert_per_rank_count = 1;
    config.expert_per_token_count = 1;
    let ep_create: EpCreate = lib.get("mori_ep_create");
    let mut outcome = lib.check(ep_create(shmem, &config, &mut ep, &mut error), &error);
    if outcome.is_ok() {
        outcome = exchange(lib, pe, ep);
    }
    if outcome.is_ok() {
        let barrier: OnHandle = lib.get("mori_shmem_barrier_all");
        outcome = lib.check(barrier(shmem, &mut error), &error);
    }
    lib.get::<Destroy>("mori_ep_destroy")(ep);
    lib.get::<Destroy>("mori_shmem_destroy")(shmem);
    outcome
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let lib = Library::open(&arguments[1], &arguments[2]);
    let mut good = true;
    unsafe {
        let version: extern "C" fn() -> u32 = lib.get("mori_ep_version");
        println!("mori-ep {:#x}", version());
        let mut error: Error = sized();
        let mut id: UniqueId = zeroed();
        let (create, mut shmem): (Create, _) = (lib.get("mori_shmem_create"), null_mut());
        let refused = create(&id, &sized::<Options>(), &mut shmem, &mut error);
        let refused = lib.check(refused, &error).unwrap_err();
        println!("{refused}");
        good &= refused.starts_with("MORI_E_INVALID");
        let make: extern "C" fn(*mut UniqueId, *mut Error) -> i32 =
            lib.get("mori_shmem_unique_id_create");
        lib.check(make(&mut id, &mut error), &error).unwrap();
        let threads: Vec<_> = (0..PES)
            .map(|pe| std::thread::spawn(move || { let lib = lib; run_pe(&lib, id, pe) }))
            .collect();
        for (pe, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join().unwrap();
            good &= outcome.is_ok();
            println!("PE {pe}: {}", outcome.err().unwrap_or("all values right".into()));
        }
    }
    println!("{} - Rust", if good { "ok" } else { "not ok" });
    std::process::exit(if good { 0 } else { 1 });
}
