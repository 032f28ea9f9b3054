-- luajit_client.lua - binds to the libraries with LuaJIT's ffi; the declarations are the C headers
-- themselves. Two PEs, this process and a fork of it, dispatch and combine, and two engines
-- transfer, what dlopen_client.c describes.
--
-- usage: luajit luajit_client.lua CAPI_FOLDER LIBMORI_SHMEM.so LIBMORI_EP.so LIBMORI_IO.so

local ffi = require("ffi")
local capi, shmem_path, ep_path, io_path = arg[1], arg[2], arg[3], arg[4]
local PES, TOKENS, HIDDEN, BYTES, UID = 2, 2, 4, 4096, 9

for _, name in ipairs({"base", "shmem_device", "shmem_types", "shmem", "ep", "io_types", "io"}) do
  local file = assert(io.open(capi .. "/include/mori/" .. name .. ".h"))
  local text = file:read("*a")
  file:close()
  local declarations = text:match("/%* cdef: begin %*/(.-)/%* cdef: end %*/")
  ffi.cdef((declarations:gsub("MORI_API ", "")))
end
ffi.cdef([[
  int fork(void);
  int pipe(int *ends);
  long read(int fd, void *to, unsigned long bytes);
  long write(int fd, const void *from, unsigned long bytes);
  int waitpid(int pid, int *status, int options);
  int usleep(unsigned int microseconds);
]])

-- shmem first: ep needs it, and finds it loaded.
local shmem_lib = ffi.load(shmem_path, true)
local ep_lib = ffi.load(ep_path)
local io_lib = ffi.load(io_path)
local C = ffi.C

local function sized(name)
  local made = ffi.new(name)
  made.struct_size = ffi.sizeof(made)
  return made
end

-- Calls a function that takes an error record last; returns nothing or why it failed.
local function call(lib, name, ...)
  local arguments, count = {...}, select("#", ...) -- some are nil
  local problem = sized("mori_error")
  arguments[count + 1] = problem
  local status = lib[name](unpack(arguments, 1, count + 1))
  if status == shmem_lib.MORI_OK then return nil end
  local text = ffi.string(shmem_lib.mori_shmem_status_name(status))
  return name .. ": " .. text .. ": " .. ffi.string(problem.message), status
end

local function exchange(pe, ep)
  local input = ffi.new("float[?]", TOKENS * HIDDEN)
  local indices = ffi.new("int32_t[?]", TOKENS)
  for i = 0, TOKENS * HIDDEN - 1 do input[i] = 10 * pe + math.floor(i / HIDDEN) end
  for token = 0, TOKENS - 1 do indices[token] = (pe + token) % PES end
  local send, received = sized("mori_ep_dispatch_args"), sized("mori_ep_dispatch_result")
  send.input, send.indices = input, indices
  send.token_count, send.dtype = TOKENS, shmem_lib.MORI_EP_F32
  local failed = call(ep_lib, "mori_ep_dispatch", ep, send, received)
  if failed then return failed end
  local rows = ffi.cast("float *", received.out)
  local count = tonumber(received.recv_token_count)
  local outputs = ffi.new("float[?]", PES * TOKENS * HIDDEN)
  for i = 0, count * HIDDEN - 1 do outputs[i] = rows[i] * (pe + 2) end
  local back, combined = sized("mori_ep_combine_args"), sized("mori_ep_combine_result")
  back.input, back.indices, back.input_row_count = outputs, indices, count
  back.token_count, back.dtype = TOKENS, shmem_lib.MORI_EP_F32
  failed = call(ep_lib, "mori_ep_combine", ep, back, combined)
  if failed then return failed end
  local got = ffi.cast("float *", combined.out)
  for i = 0, TOKENS * HIDDEN - 1 do
    if got[i] ~= input[i] * (indices[math.floor(i / HIDDEN)] + 2) then
      return "value " .. i .. " is " .. got[i]
    end
  end
end

local function run_pe(pe, id)
  local options, config = sized("mori_shmem_options"), sized("mori_ep_config")
  options.pe, options.pe_count, options.heap_bytes = pe, PES, 2 ^ 20
  config.hidden_dim, config.max_input_token_count = HIDDEN, TOKENS
  config.expert_per_rank_count, config.expert_per_token_count = 1, 1
  local shmem, ep = ffi.new("mori_shmem *[1]"), ffi.new("mori_ep *[1]")
  local failed = call(shmem_lib, "mori_shmem_create", id, options, shmem)
    or call(ep_lib, "mori_ep_create", shmem[0], config, ep)
    or exchange(pe, ep[0])
    or call(shmem_lib, "mori_shmem_barrier_all", shmem[0])
  ep_lib.mori_ep_destroy(ep[0])
  shmem_lib.mori_shmem_destroy(shmem[0])
  print("PE " .. pe .. ": " .. (failed or "all values right"))
  return failed == nil
end

-- An engine, its memory, and the bytes by which the other side knows both; or why not.
local function open_side(key)
  local side = {buffer = ffi.new("uint8_t[?]", BYTES), io = ffi.new("mori_io *[1]")}
  local options = sized("mori_io_options")
  side.key, side.host = key, "127.0.0.1" -- the options only point to them
  options.in_key, options.in_host = side.key, side.host
  local region = ffi.new("uint32_t[1]")
  local failed = call(io_lib, "mori_io_create", options, side.io)
    or call(io_lib, "mori_io_backend_create", side.io[0], io_lib.MORI_IO_BACKEND_TCP, nil)
    or call(io_lib, "mori_io_memory_register", side.io[0], side.buffer, BYTES,
      io_lib.MORI_IO_LOCATION_CPU, -1, 0, region)
  side.region = region[0]
  return side, failed
end

local function described(side, name, ...)
  local arguments, room = {...}, ffi.new("uint64_t[1]", 4096)
  local bytes = ffi.new("char[4096]")
  arguments[#arguments + 1], arguments[#arguments + 2] = bytes, room
  local failed = call(io_lib, name, side.io[0], unpack(arguments))
  return bytes, room[0], failed
end

local function write_halves(session)
  local half = BYTES / 2
  local from, to = ffi.new("uint64_t[2]", 0, half), ffi.new("uint64_t[2]", half, 0)
  local sizes, request = ffi.new("uint64_t[2]", half, half), sized("mori_io_request")
  request.operation, request.piece_count, request.uid = io_lib.MORI_IO_WRITE, 2, UID
  request.in_local_offsets, request.in_remote_offsets, request.in_sizes_bytes = from, to, sizes
  local transfer = ffi.new("mori_io_transfer *[1]")
  local failed = call(io_lib, "mori_io_submit", session, request, transfer)
    or call(io_lib, "mori_io_transfer_wait", ffi.cast("const mori_io_transfer *const *", transfer),
      1, 30000000000ULL)
  io_lib.mori_io_transfer_release(transfer[0])
  return failed
end

-- The target is told when the data are there: looked for, ten seconds at most.
local function hear(side, told)
  local failed, status
  for poll = 1, 10000 do
    failed, status = call(io_lib, "mori_io_inbound_pop", side.io[0], "left", UID, told)
    if status ~= io_lib.MORI_E_AGAIN then return failed end
    C.usleep(1000)
  end
  return failed
end

local function transfers()
  local left, left_failed = open_side("left")
  local right, right_failed = open_side("right")
  for i = 0, BYTES - 1 do left.buffer[i] = (7 * i + 1) % 256 end
  local engine, engine_bytes = described(right, "mori_io_desc")
  local memory, memory_bytes = described(right, "mori_io_memory_desc", right.region)
  local session, told = ffi.new("mori_io_session *[1]"), sized("mori_io_inbound")
  local failed = left_failed or right_failed
    or call(io_lib, "mori_io_remote_register", left.io[0], engine, engine_bytes)
    or call(io_lib, "mori_io_session_create", left.io[0], left.region, memory, memory_bytes, nil,
      session)
    or write_halves(session[0]) or hear(right, told)
  for i = 0, BYTES - 1 do
    if right.buffer[i] ~= left.buffer[(i + BYTES / 2) % BYTES] then
      failed = failed or "byte " .. i .. " is " .. right.buffer[i]
    end
  end
  io_lib.mori_io_session_destroy(session[0])
  io_lib.mori_io_destroy(left.io[0])
  io_lib.mori_io_destroy(right.io[0])
  print("io: " .. (failed or tonumber(told.size_bytes) .. " bytes announced, all right"))
  return failed == nil and told.size_bytes == BYTES
end

-- What a program of a later release meets, which sets a field unknown here.
local function refuses_later_struct()
  local bytes = ffi.sizeof("mori_io_options")
  local longer = ffi.new("uint64_t[?]", bytes / 8 + 1)
  longer[0], longer[bytes / 8] = bytes + 8, 1
  local options = ffi.cast("mori_io_options *", longer)
  local refusal = call(io_lib, "mori_io_create", options, ffi.new("mori_io *[1]"))
  print(refusal)
  return refusal ~= nil and refusal:find("MORI_E_VERSION: .* 80 bytes") ~= nil
end

local id = ffi.new("mori_shmem_unique_id")
local ends = ffi.new("int[2]")
assert(C.pipe(ends) == 0)
-- Before the libraries have done anything: a context does not survive a fork.
local child = C.fork()
assert(child >= 0)
if child == 0 then
  local told = C.read(ends[0], id, ffi.sizeof(id)) == ffi.sizeof(id)
  os.exit(told and run_pe(1, id) and 0 or 1)
end

print(string.format("mori-shmem %#x, mori-ep %#x, mori-io %#x", shmem_lib.mori_shmem_version(),
  ep_lib.mori_ep_version(), io_lib.mori_io_version()))
local refusal = call(shmem_lib, "mori_shmem_create", id, sized("mori_shmem_options"),
  ffi.new("mori_shmem *[1]"))
print(refusal)
local failed = call(shmem_lib, "mori_shmem_unique_id_create", id)
if failed then print(failed) end
C.write(ends[1], id, ffi.sizeof(id))
local good = run_pe(0, id)
local status = ffi.new("int[1]")
good = C.waitpid(child, status, 0) == child and status[0] == 0 and good
good = refuses_later_struct() and transfers() and good
good = good and refusal ~= nil and refusal:find("MORI_E_INVALID", 1, true) ~= nil
print(good and "ok - LuaJIT" or "not ok - LuaJIT")
os.exit(good and 0 or 1)
