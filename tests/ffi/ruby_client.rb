# ruby_client.rb - binds to the libraries from Ruby by Fiddle, with no gem; the structs are taken
# from the C headers. Two PEs, this process and a fork of it, dispatch and combine, and two engines
# transfer, what dlopen_client.c describes.
#
# usage: ruby ruby_client.rb CAPI_FOLDER LIBMORI_SHMEM.so LIBMORI_EP.so LIBMORI_IO.so
require "fiddle"
require "fiddle/import"

PES, TOKENS, HIDDEN, F32 = 2, 2, 4, 1
BYTES, UID = 4096, 9
IO_TCP, IO_CPU, IO_WRITE, AGAIN = 3, 1, 2, 16

# The headers' structs: sizes and offsets follow from the fields' types, none has padding.
module Headers
  SIZES = {"uint8_t" => [1, "C"], "char" => [1, "c"], "int32_t" => [4, "l"],
           "mori_status" => [4, "l"], "uint32_t" => [4, "L"], "uint64_t" => [8, "Q"]}
  STRUCTS = {}

  def self.read(folder)
    Dir["#{folder}/include/mori/*.h"].each do |path|
      text = File.read(path).gsub(%r{/\*.*?\*/}m, "")
      text.scan(/typedef struct (\w+) \{(.*?)\}/m) { |name, body| STRUCTS[name] = fields(body) }
    end
  end

  def self.fields(body)
    offset, found = 0, {}
    body.split(";").map(&:strip).reject(&:empty?).each do |line|
      name = line[/(\w+)(\[\w+\])*\z/, 1]
      size, code = line.include?("*") ? [8, "Q"] : SIZES[line[/\A(?:const )?(\w+)/, 1]]
      return nil if size.nil?
      count = line[/\[(\d+)\]/, 1].to_i
      found[name] = [offset, size, code]
      offset += size * [count, 1].max
    end
    found.merge("" => [offset, 0, nil])
  end
end

# A struct of the C headers in memory of its own, zeroed, with its struct_size set.
class Record
  attr_reader :memory

  def initialize(name, extra: 0, **fields)
    @fields = Headers::STRUCTS.fetch(name)
    size = @fields[""][0] + extra
    @memory = Fiddle::Pointer.malloc(size, Fiddle::RUBY_FREE)
    @memory[0, size] = "\0" * size
    self["struct_size"] = size if @fields.key?("struct_size")
    fields.each { |field, value| self[field.to_s] = value }
  end

  def []=(field, value)
    offset, size, code = @fields.fetch(field)
    @memory[offset, size] = [value.to_i].pack(code)
  end

  def [](field)
    offset, size, code = @fields.fetch(field)
    @memory[offset, size].unpack1(code)
  end

  def text(field)
    (@memory + @fields.fetch(field)[0]).to_s
  end
end

class CallError < StandardError
  attr_reader :status

  def initialize(message, status)
    super(message)
    @status = status
  end
end

class Library
  def initialize(path)
    @handle = Fiddle::Handle.new(path, Fiddle::RTLD_NOW | Fiddle::RTLD_GLOBAL)
  end

  # Arguments are numbers and pointers; 64-bit registers carry both.
  def function(name, count, result)
    Fiddle::Function.new(@handle[name], [Fiddle::TYPE_LONG_LONG] * count, result)
  end

  def version(name)
    function("mori_#{name}_version", 0, -Fiddle::TYPE_INT).call
  end

  # Calls a function that returns a status and takes an error record last.
  def call(name, *arguments)
    error = Record.new("mori_error")
    plain = arguments.map { |one| one.is_a?(Record) ? one.memory.to_i : one.to_i }
    status = function(name, plain.size + 1, Fiddle::TYPE_INT).call(*plain, error.memory.to_i)
    return if status.zero?
    names = function(name[/\Amori_[a-z]+/].sub("mori_ep", "mori_shmem") + "_status_name", 1,
                     Fiddle::TYPE_VOIDP)
    raise CallError.new("#{name}: #{names.call(status)}: #{error.text("message")}", status)
  end

  def destroy(name, handle)
    function(name, 1, Fiddle::TYPE_VOID).call(handle.to_i)
  end
end

def handle
  Fiddle::Pointer.malloc(8, Fiddle::RUBY_FREE).tap { |slot| slot[0, 8] = "\0" * 8 }
end

def value_of(slot)
  slot[0, 8].unpack1("Q")
end

def array(code, values)
  packed = values.pack("#{code}*")
  Fiddle::Pointer.malloc(packed.bytesize, Fiddle::RUBY_FREE).tap do |memory|
    memory[0, packed.bytesize] = packed
  end
end

def floats(address, count)
  Fiddle::Pointer.new(address)[0, 4 * count].unpack("e*")
end

def exchange(ep_library, pe, ep)
  tokens = Array.new(TOKENS * HIDDEN) { |i| (10 * pe + i / HIDDEN).to_f }
  routed = Array.new(TOKENS) { |token| (pe + token) % PES }
  input, indices = array("e", tokens), array("l", routed)
  send = Record.new("mori_ep_dispatch_args", input: input, indices: indices, token_count: TOKENS,
                                              dtype: F32)
  received = Record.new("mori_ep_dispatch_result")
  ep_library.call("mori_ep_dispatch", ep, send, received)
  rows = received["recv_token_count"]
  outputs = array("e", floats(received["out"], rows * HIDDEN).map { |value| value * (pe + 2) })
  back = Record.new("mori_ep_combine_args", input: outputs, indices: indices, dtype: F32,
                                             token_count: TOKENS, input_row_count: rows)
  combined = Record.new("mori_ep_combine_result")
  ep_library.call("mori_ep_combine", ep, back, combined)
  expected = tokens.each_with_index.map { |value, i| value * (routed[i / HIDDEN] + 2) }
  floats(combined["out"], TOKENS * HIDDEN) == expected
end

def run_pe(shmem_library, ep_library, pe, id)
  shmem, ep = handle, handle
  options = Record.new("mori_shmem_options", pe: pe, pe_count: PES, heap_bytes: 1 << 20)
  config = Record.new("mori_ep_config", hidden_dim: HIDDEN, max_input_token_count: TOKENS,
                                         expert_per_rank_count: 1, expert_per_token_count: 1)
  shmem_library.call("mori_shmem_create", id, options, shmem)
  ep_library.call("mori_ep_create", value_of(shmem), config, ep)
  good = exchange(ep_library, pe, value_of(ep))
  shmem_library.call("mori_shmem_barrier_all", value_of(shmem))
  puts "PE #{pe}: #{good ? "all values right" : "wrong values"}"
  good
rescue CallError => failure
  puts "PE #{pe}: #{failure.message}"
  false
ensure
  ep_library.destroy("mori_ep_destroy", value_of(ep))
  shmem_library.destroy("mori_shmem_destroy", value_of(shmem))
end

# An engine, its memory, and the bytes by which the other side knows both.
class Side
  attr_reader :io, :buffer, :region

  def initialize(library, key, bytes)
    @library, @slot, @buffer = library, handle, array("C", bytes)
    @texts = [key, "127.0.0.1"].map { |text| array("C", text.bytes + [0]) }
    options = Record.new("mori_io_options", in_key: @texts[0], in_host: @texts[1])
    library.call("mori_io_create", options, @slot)
    @io, region = value_of(@slot), handle
    library.call("mori_io_backend_create", @io, IO_TCP, 0)
    library.call("mori_io_memory_register", @io, @buffer, BYTES, IO_CPU, -1, 0, region)
    @region = value_of(region) & 0xFFFFFFFF
  end

  def described(name, *arguments)
    bytes, room = array("C", [0] * 4096), array("Q", [4096])
    @library.call(name, @io, *arguments, bytes, room)
    [bytes, value_of(room)]
  end

  def close
    @library.destroy("mori_io_destroy", @io)
  end
end

def write_halves(library, session)
  half, transfer = BYTES / 2, handle
  from, to, sizes = [[0, half], [half, 0], [half, half]].map { |values| array("Q", values) }
  request = Record.new("mori_io_request", operation: IO_WRITE, piece_count: 2, uid: UID,
                                           in_local_offsets: from, in_remote_offsets: to,
                                           in_sizes_bytes: sizes)
  library.call("mori_io_submit", session, request, transfer)
  library.call("mori_io_transfer_wait", transfer, 1, 30 * 10**9)
ensure
  library.destroy("mori_io_transfer_release", value_of(transfer))
end

# The bytes announced to the target; looked for, ten seconds at most.
def hear(library, side)
  told, peer = Record.new("mori_io_inbound"), array("C", "left\0".bytes)
  polls = 0
  begin
    library.call("mori_io_inbound_pop", side.io, peer, UID, told)
  rescue CallError => failure
    raise if failure.status != AGAIN || (polls += 1) > 10_000
    sleep 0.001
    retry
  end
  told["size_bytes"]
end

def transfers(library)
  source = Array.new(BYTES) { |i| (7 * i + 1) % 256 }
  left, right = Side.new(library, "left", source), Side.new(library, "right", [0] * BYTES)
  session = handle
  library.call("mori_io_remote_register", left.io, *right.described("mori_io_desc"))
  library.call("mori_io_session_create", left.io, left.region,
               *right.described("mori_io_memory_desc", right.region), 0, session)
  write_halves(library, value_of(session))
  announced = hear(library, right)
  good = right.buffer[0, BYTES].bytes == source.rotate(BYTES / 2) && announced == BYTES
  library.destroy("mori_io_session_destroy", value_of(session))
  [left, right].each(&:close)
  puts "io: #{announced} bytes announced, #{good ? "all right" : "wrong bytes"}"
  good
end

def refused(pattern)
  yield
  puts "not refused"
  false
rescue CallError => failure
  puts failure.message
  failure.message.match?(pattern)
end

# What a program of a later release meets, which sets a field unknown here.
def refuses_later_struct(library)
  options = Record.new("mori_io_options", extra: 8)
  options.memory[options["struct_size"] - 8, 8] = [1].pack("Q")
  refused(/MORI_E_VERSION: .* 80 bytes/) { library.call("mori_io_create", options, handle) }
end

def refuses_zero_pes(library, id)
  options = Record.new("mori_shmem_options")
  refused(/MORI_E_INVALID/) { library.call("mori_shmem_create", id, options, handle) }
end

Headers.read(ARGV[0])
$stdout.sync = true
# shmem first: ep needs it, and finds it loaded.
shmem_library, ep_library, io_library = ARGV[1, 3].map { |path| Library.new(path) }
read_end, write_end = IO.pipe
# Before the libraries have done anything: a context does not survive a fork.
child = fork do
  id = array("C", read_end.read(128).bytes)
  exit!(run_pe(shmem_library, ep_library, 1, id) ? 0 : 1)
end
{shmem: shmem_library, ep: ep_library, io: io_library}.each do |name, library|
  puts format("mori-%s %#x", name, library.version(name))
end
id = array("C", [0] * 128)
good = refuses_zero_pes(shmem_library, id)
shmem_library.call("mori_shmem_unique_id_create", id)
write_end.write(id[0, 128])
good = run_pe(shmem_library, ep_library, 0, id) && good
Process.wait(child)
good = $?.success? && refuses_later_struct(io_library) && transfers(io_library) && good
puts "#{good ? "ok" : "not ok"} - Ruby"
exit(good ? 0 : 1)
