// io_test.cpp - the identity of libmori-io, through the C ABI and through its C++ wrapper.
#include <mori/io.hpp>

#include <doctest/doctest.h>

#include <string>

TEST_CASE("the library is the version that its header states") {
  CHECK(mori_io_version() ==
        MORI_VERSION_PACK(MORI_IO_VERSION_MAJOR, MORI_IO_VERSION_MINOR, MORI_IO_VERSION_PATCH));
  CHECK(mori::io::version() == mori::io::compiled_version);
}

TEST_CASE("a version packs into fields that do not overlap") {
  CHECK(MORI_VERSION_PACK(1, 0, 0) == 4194304u);
  CHECK(MORI_VERSION_PACK(0, 1, 0) == 4096u);
  CHECK(MORI_VERSION_PACK(0, 0, 1) == 1u);
  CHECK(MORI_VERSION_PACK(1023, 1023, 4095) == 0xFFFFFFFFu);
}

TEST_CASE("the ABI level is two") { CHECK(mori::io::abi_level() == 2); }

TEST_CASE("each status has a name, and an unknown one has too") {
  for (mori_status status = MORI_OK; status <= MORI_E_INTERNAL; ++status) {
    const std::string name(mori::io::status_name(status));
    CHECK(name.rfind("MORI_", 0) == 0);
    CHECK(name != "MORI_E_?");
  }
  CHECK(mori::io::status_name(MORI_E_TIMEOUT) == "MORI_E_TIMEOUT");
  CHECK(mori::io::status_name(MORI_E_INTERNAL + 1) == "MORI_E_?");
  CHECK(mori::io::status_name(-1) == "MORI_E_?");
}
