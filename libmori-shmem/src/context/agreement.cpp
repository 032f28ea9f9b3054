// agreement.cpp - see agreement.hpp.
#include "context/agreement.hpp"

#include <algorithm>
#include <cstring>

namespace mori::shmem_core {
namespace {

struct verdict {
  mori_status status;
  int32_t os_errno;
  char text[216];
};

}  // namespace

base::status agree(link::group& group, const base::status& mine, base::deadline until) {
  verdict own{};
  if (!mine) {
    own.status = mine.error().status;
    own.os_errno = mine.error().os_errno;
    const size_t size = std::min(mine.error().text.size(), sizeof own.text - 1);
    std::memcpy(own.text, mine.error().text.data(), size);
  }
  MORI_TRY(const auto all, exchange(group, own, until));
  if (!mine) return mine;
  for (int pe = 0; pe < group.size(); ++pe) {
    const verdict& said = all[static_cast<size_t>(pe)];
    if (said.status == MORI_OK) continue;
    return base::failure{said.status, said.os_errno, fmt::format("PE {}: {}", pe, said.text)};
  }
  return {};
}

}  // namespace mori::shmem_core
