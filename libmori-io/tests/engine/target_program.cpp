// target_program.cpp - engine "b" in a process of its own, to be stopped, killed and
// started again by engine_faults_test.cpp. Writes its two descriptors to stdout as
// hexadecimal lines, then serves until stdin closes.
//
//   usage: target_program BYTES FILL
#include <mori/io.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void print(const std::vector<uint8_t>& bytes, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) std::printf("%02x", bytes[i]);
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  std::vector<uint8_t> memory(std::strtoull(arguments[1], nullptr, 10),
                              static_cast<uint8_t>(std::atoi(arguments[2])));
  mori_io_options options{};
  options.struct_size = sizeof options;
  options.in_key = "b";
  options.in_host = "127.0.0.1";
  mori_io* io = nullptr;
  uint32_t region = 0;
  std::vector<uint8_t> packed(32768);
  uint64_t bytes = packed.size();
  mori_error error = MORI_ERROR_INIT;
  if (mori_io_create(&options, &io, &error) != MORI_OK ||
      mori_io_backend_create(io, MORI_IO_BACKEND_TCP, nullptr, &error) != MORI_OK ||
      mori_io_memory_register(io, memory.data(), memory.size(), MORI_IO_LOCATION_CPU, -1, 0,
                              &region, &error) != MORI_OK ||
      mori_io_desc(io, packed.data(), &bytes, &error) != MORI_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  print(packed, bytes);
  bytes = packed.size();
  if (mori_io_memory_desc(io, region, packed.data(), &bytes, &error) != MORI_OK) return 1;
  print(packed, bytes);
  std::fflush(stdout);
  char end = 0;
  while (read(0, &end, 1) > 0) {
  }
  mori_io_destroy(io);
  return 0;
}
