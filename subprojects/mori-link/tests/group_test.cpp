#include <mori/link/group.hpp>

#include <doctest/doctest.h>

#include <thread>

namespace base = mori::base;
namespace mlink = mori::link;

TEST_CASE("smoke") {
  for (int n : {1, 2, 3, 5, 8}) {
    auto id = mlink::make_unique_id();
    REQUIRE(id);
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r)
      threads.emplace_back([&, r] {
        mlink::group_options o;
        o.id = *id;
        o.rank = r;
        o.size = n;
        o.join_timeout_ns = 5 * base::ns_per_s;
        auto g = mlink::group::join(o);
        CHECK_MESSAGE(g, (g ? "" : g.error().text));
        if (!g) return;
        for (int i = 0; i < 1000; ++i) {
          auto s = (*g)->barrier(base::deadline::after(base::ns_per_s));
          if (!s) FAIL_CHECK(s.error().text);
        }
        std::vector<std::byte> mine(100, std::byte(r)), all(100 * n);
        auto s = (*g)->allgather(mine, all, base::deadline::after(base::ns_per_s));
        CHECK(s);
        for (int k = 0; k < n; ++k) CHECK(all[k * 100 + 99] == std::byte(k));
        for (int k = 0; k < n; ++k) {
          auto f = (*g)->share_descriptor(k, 1, base::deadline::after(base::ns_per_s));
          CHECK_MESSAGE(f, (f ? "" : f.error().text));
        }
        (*g)->leave();
        CHECK(!(*g)->fault());
      });
    for (auto& t : threads) t.join();
  }
}
