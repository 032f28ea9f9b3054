-- luajit_client.lua - binds to the libraries with LuaJIT's ffi; the declarations are the C headers
-- themselves. Two PEs, this process and a fork of it, dispatch and combine what dlopen_client.c
-- describes.
--
-- usage: luajit luajit_client.lua CAPI_FOLDER LIBMORI_SHMEM.so LIBMORI_EP.so

local ffi = require("ffi")
local capi, shmem_path, ep_path = arg[1], arg[2], arg[3]
local PES, TOKENS, HIDDEN = 2, 2, 4

for _, name in ipairs({"base", "shmem_device", "shmem_types", "shmem", "ep"}) do
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
]])

-- shmem first: ep needs it, and finds it loaded.
local shmem_lib = ffi.load(shmem_path, true)
local ep_lib = ffi.load(ep_path)
local C = ffi.C

local function sized(name)
  local made = ffi.new(name)
  made.struct_size = ffi.sizeof(made)
  return made
end

-- Calls a function that takes an error record last; returns nothing or why it failed.
local function call(lib, name, ...)
  local arguments = {...}
  local problem = sized("mori_error")
  arguments[#arguments + 1] = problem
  local status = lib[name](unpack(arguments))
  if status == shmem_lib.MORI_OK then return nil end
  local text = ffi.string(shmem_lib.mori_shmem_status_name(status))
  return name .. ": " .. text .. ": " .. ffi.string(problem.message)
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

print(string.format("mori-shmem %#x, mori-ep %#x", shmem_lib.mori_shmem_version(),
  ep_lib.mori_ep_version()))
local refusal = call(shmem_lib, "mori_shmem_create", id, sized("mori_shmem_options"),
  ffi.new("mori_shmem *[1]"))
print(refusal)
local failed = call(shmem_lib, "mori_shmem_unique_id_create", id)
if failed then print(failed) end
C.write(ends[1], id, ffi.sizeof(id))
local good = run_pe(0, id)
local status = ffi.new("int[1]")
good = C.waitpid(child, status, 0) == child and status[0] == 0 and good
good = good and refusal ~= nil and refusal:find("MORI_E_INVALID", 1, true) ~= nil
print(good and "ok - LuaJIT" or "not ok - LuaJIT")
os.exit(good and 0 or 1)
