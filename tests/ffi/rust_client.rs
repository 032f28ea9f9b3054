// rust_client.rs - binds to the libraries from Rust by dlopen, with no crate. Two PEs, threads of
// this process, dispatch and combine, and two engines transfer, what dlopen_client.c describes. The
// structs are the ones of this release: a later library accepts them by their struct_size.
//
// usage: rust_client LIBMORI_SHMEM.so LIBMORI_EP.so LIBMORI_IO.so
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::{size_of, transmute_copy, zeroed};
use std::ptr::null_mut;

const PES: i32 = 2;
const TOKENS: usize = 2;
const HIDDEN: usize = 4;
const F32: i32 = 1;
const BYTES: usize = 4096;
const UID: u64 = 9;
const IO_TCP: i32 = 3;
const IO_CPU: i32 = 1;
const IO_WRITE: i32 = 2;
const AGAIN: i32 = 16;
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

#[repr(C)]
struct IoOptions {
    struct_size: u64, key: *const c_char, host: *const c_char, port: i32, progress: i32,
    security: i32, require_known_peers: i32, control_timeout_ns: u64, peer_timeout_ns: u64,
    spin_ns: u64, transfer_count: u32, inbound_count: u32,
}
#[repr(C)]
struct Request {
    struct_size: u64, operation: i32, priority: i32, piece_count: u64, local_offsets: *const u64,
    remote_offsets: *const u64, sizes_bytes: *const u64, uid: u64, timeout_ns: u64,
    metadata: *const c_void, metadata_bytes: u32, disable_notification: i32, tag: u64,
    enqueue_completion: i32, reserved: i32,
}
#[repr(C)]
struct Inbound {
    struct_size: u64, peer_key: [c_char; 136], uid: u64, size_bytes: u64, operation: i32,
    memory_id: u32, metadata_bytes: u32, reserved: u32, metadata: [u8; 1024],
}
/// What a later release might have made of the options.
#[repr(C)]
struct LaterOptions { today: IoOptions, tomorrow: u64 }

/// A zeroed struct with its struct_size, which is the first field of each, set.
fn sized<T>() -> T {
    unsafe {
        let mut made: T = zeroed();
        *(&mut made as *mut T as *mut u64) = size_of::<T>() as u64;
        made
    }
}

#[derive(Clone, Copy)]
struct Library { ep: *mut c_void, io: *mut c_void }
unsafe impl Send for Library {}

impl Library {
    fn open(shmem: &str, ep: &str, io: &str) -> Library {
        let path = |name: &str| CString::new(name).unwrap();
        unsafe {
            // shmem first: ep needs it, and finds it loaded.
            assert!(!dlopen(path(shmem).as_ptr(), RTLD_NOW | RTLD_GLOBAL).is_null());
            let ep = dlopen(path(ep).as_ptr(), RTLD_NOW);
            let io = dlopen(path(io).as_ptr(), RTLD_NOW);
            assert!(!ep.is_null() && !io.is_null());
            Library { ep, io }
        }
    }

    /// F must be the function pointer type of that C function.
    unsafe fn get<F>(&self, name: &str) -> F {
        let library = if name.starts_with("mori_io") { self.io } else { self.ep };
        let symbol = dlsym(library, CString::new(name).unwrap().as_ptr());
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

type IoCreate = extern "C" fn(*const IoOptions, *mut *mut c_void, *mut Error) -> i32;
type Backend = extern "C" fn(*mut c_void, i32, *const c_void, *mut Error) -> i32;
type Register =
    extern "C" fn(*mut c_void, *mut u8, u64, i32, i32, i32, *mut u32, *mut Error) -> i32;
type Describe = extern "C" fn(*mut c_void, *mut u8, *mut u64, *mut Error) -> i32;
type DescribeMemory = extern "C" fn(*mut c_void, u32, *mut u8, *mut u64, *mut Error) -> i32;
type Remote = extern "C" fn(*mut c_void, *const u8, u64, *mut Error) -> i32;
type Session = extern "C" fn(
    *mut c_void, u32, *const u8, u64, *const c_void, *mut *mut c_void, *mut Error) -> i32;
type Submit = extern "C" fn(*mut c_void, *const Request, *mut *mut c_void, *mut Error) -> i32;
type Wait = extern "C" fn(*const *mut c_void, u64, u64, *mut Error) -> i32;
type Pop = extern "C" fn(*mut c_void, *const c_char, u64, *mut Inbound, *mut Error) -> i32;

/// An engine, its memory, and the bytes by which the other side knows both.
struct Side { io: *mut c_void, region: u32, buffer: Vec<u8>, engine: Vec<u8>, memory: Vec<u8> }

unsafe fn open_side(lib: &Library, key: &str, bytes: Vec<u8>) -> Result<Side, String> {
    let mut error: Error = sized();
    let texts = [CString::new(key).unwrap(), CString::new("127.0.0.1").unwrap()];
    let mut options: IoOptions = sized();
    (options.key, options.host) = (texts[0].as_ptr(), texts[1].as_ptr());
    let (engine, memory) = (vec![0; BYTES], vec![0; BYTES]);
    let mut side = Side { io: null_mut(), region: 0, buffer: bytes, engine, memory };
    let create: IoCreate = lib.get("mori_io_create");
    lib.check(create(&options, &mut side.io, &mut error), &error)?;
    let backend: Backend = lib.get("mori_io_backend_create");
    lib.check(backend(side.io, IO_TCP, null_mut(), &mut error), &error)?;
    let register: Register = lib.get("mori_io_memory_register");
    let (data, bytes) = (side.buffer.as_mut_ptr(), BYTES as u64);
    let status = register(side.io, data, bytes, IO_CPU, -1, 0, &mut side.region, &mut error);
    lib.check(status, &error)?;
    let mut room = BYTES as u64;
    let describe: Describe = lib.get("mori_io_desc");
    lib.check(describe(side.io, side.engine.as_mut_ptr(), &mut room, &mut error), &error)?;
    side.engine.truncate(room as usize);
    room = BYTES as u64;
    let describe: DescribeMemory = lib.get("mori_io_memory_desc");
    let status =
        describe(side.io, side.region, side.memory.as_mut_ptr(), &mut room, &mut error);
    lib.check(status, &error)?;
    side.memory.truncate(room as usize);
    Ok(side)
}

unsafe fn write_halves(lib: &Library, session: *mut c_void) -> Result<(), String> {
    let (mut error, half): (Error, u64) = (sized(), BYTES as u64 / 2);
    let (from, to, sizes) = ([0, half], [half, 0], [half, half]);
    let mut request: Request = sized();
    (request.operation, request.piece_count, request.uid) = (IO_WRITE, 2, UID);
    request.local_offsets = from.as_ptr();
    request.remote_offsets = to.as_ptr();
    request.sizes_bytes = sizes.as_ptr();
    let (submit, mut transfer): (Submit, _) = (lib.get("mori_io_submit"), null_mut());
    lib.check(submit(session, &request, &mut transfer, &mut error), &error)?;
    let wait: Wait = lib.get("mori_io_transfer_wait");
    let outcome = lib.check(wait(&transfer, 1, 30_000_000_000, &mut error), &error);
    lib.get::<Destroy>("mori_io_transfer_release")(transfer);
    outcome
}

/// The bytes announced to the target; looked for, ten seconds at most.
unsafe fn hear(lib: &Library, target: &Side) -> Result<u64, String> {
    let (mut error, mut told): (Error, Inbound) = (sized(), sized());
    let (pop, peer): (Pop, _) = (lib.get("mori_io_inbound_pop"), CString::new("left").unwrap());
    let mut status = AGAIN;
    for poll in 0..10000 {
        if poll > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        status = pop(target.io, peer.as_ptr(), UID, &mut told, &mut error);
        if status != AGAIN {
            break;
        }
    }
    lib.check(status, &error).map(|_| told.size_bytes)
}

unsafe fn transfers(lib: &Library) -> Result<(), String> {
    let mut error: Error = sized();
    let source: Vec<u8> = (0..BYTES).map(|i| (7 * i + 1) as u8).collect();
    let left = open_side(lib, "left", source.clone())?;
    let right = open_side(lib, "right", vec![0; BYTES])?;
    let remote: Remote = lib.get("mori_io_remote_register");
    let engine = &right.engine;
    lib.check(remote(left.io, engine.as_ptr(), engine.len() as u64, &mut error), &error)?;
    let (join, mut session): (Session, _) = (lib.get("mori_io_session_create"), null_mut());
    let (memory, bytes) = (right.memory.as_ptr(), right.memory.len() as u64);
    let status =
        join(left.io, left.region, memory, bytes, null_mut(), &mut session, &mut error);
    lib.check(status, &error)?;
    write_halves(lib, session)?;
    let announced = hear(lib, &right)?;
    let swapped = [&source[BYTES / 2..], &source[..BYTES / 2]].concat();
    let good = announced == BYTES as u64 && right.buffer == swapped;
    lib.get::<Destroy>("mori_io_session_destroy")(session);
    lib.get::<Destroy>("mori_io_destroy")(left.io);
    lib.get::<Destroy>("mori_io_destroy")(right.io);
    if good { Ok(()) } else { Err(format!("wrong bytes, {announced} announced")) }
}

/// What a program of a later release meets, which sets a field unknown here.
unsafe fn refuses_later_struct(lib: &Library) -> bool {
    let (mut error, mut options): (Error, LaterOptions) = (sized(), sized());
    options.tomorrow = 1;
    let (create, mut io): (IoCreate, _) = (lib.get("mori_io_create"), null_mut());
    let refused = lib.check(create(&options.today, &mut io, &mut error), &error);
    let refused = refused.err().unwrap_or_default();
    println!("{refused}");
    refused.starts_with("MORI_E_VERSION") && refused.contains(" 80 bytes")
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let lib = Library::open(&arguments[1], &arguments[2], &arguments[3]);
    let mut good = true;
    unsafe {
        for name in ["mori_shmem", "mori_ep", "mori_io"] {
            let version: extern "C" fn() -> u32 = lib.get(&format!("{name}_version"));
            println!("{name} {:#x}", version());
        }
        let mut error: Error = sized();
        let mut id: UniqueId = zeroed();
        let (create, mut shmem): (Create, _) = (lib.get("mori_shmem_create"), null_mut());
        let refused = create(&id, &sized::<Options>(), &mut shmem, &mut error);
        let refused = lib.check(refused, &error).unwrap_err();
        println!("{refused}");
        good &= refused.starts_with("MORI_E_INVALID");
        good &= refuses_later_struct(&lib);
        let moved = transfers(&lib);
        good &= moved.is_ok();
        println!("io: {}", moved.err().unwrap_or("all right".into()));
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
