// io.cppm - the names of mori/io.hpp and mori/io.h as the module mori.io. The headers are the source
// of truth; this unit only exports them and attaches nothing to the module, so it adds no ABI.
// Macros do not travel through a module: include mori/io.h for those. A compiled module fits one
// compiler and its flags only, so this source is what is installed.
module;
#include <mori/io.hpp>
export module mori.io;

export {
  using ::mori_error;
  using ::mori_status;
  using ::MORI_E_AGAIN;
}
export namespace mori::io {
using mori::io::abi_level;
}
