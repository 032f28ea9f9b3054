// main.cpp - the GPU tests: skipped with a reason (exit status 77) where there is no GPU.
#define DOCTEST_CONFIG_IMPLEMENT
#include "world.hpp"

#include <doctest/doctest.h>

#include <cstdio>

int main(int count, char** arguments) {
  const auto& found = gpu_test::backend_here();
  std::printf("%s\n", found.reason.c_str());
  if (found.backend == 0) {
    std::printf("skipped: no GPU here\n");
    return 77;
  }
  return doctest::Context(count, arguments).run();
}
