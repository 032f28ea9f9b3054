// wire_fuzz.cpp - libFuzzer's entry: one program for all targets, since nearly
// all of it is the code under test. MORI_FUZZ_TARGET names the target.
#include "wire_fuzz.hpp"

#include <cstdio>
#include <string_view>

namespace {

using target = void (*)(fuzz::byte_span);

target chosen() {
  const char* const wanted = std::getenv("MORI_FUZZ_TARGET");
  const std::string_view name = wanted != nullptr ? wanted : "";
  if (name == "descriptor") return fuzz::descriptor;
  if (name == "handshake") return fuzz::handshake;
  if (name == "frame") return fuzz::frame;
  std::fputs("MORI_FUZZ_TARGET must be descriptor, handshake or frame\n", stderr);
  return nullptr;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const target run = chosen();
  fuzz::require(run != nullptr);
  run(std::as_bytes(std::span(data, size)));
  return 0;
}
