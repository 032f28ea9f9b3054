// shmem_teams.cpp - the exports of mori/shmem_teams.h. A team keeps its context's handle, not the
// context: once that is destroyed, calls answer MORI_E_STATE.
#include "capi/handles.hpp"
#include "context/team.hpp"

#include <numeric>

using namespace mori::shmem_capi;
using mori::shmem_core::team;

namespace {

constexpr unsigned team_kind = 9;

struct team_of {
  mori_shmem* owner = nullptr;
  std::shared_ptr<team> members;  // shared with calls in progress
};

base::handle_table<team_of, mori_shmem_team>& teams() {
  static auto* const table =
      new base::handle_table<team_of, mori_shmem_team>(team_kind, "mori_shmem_team");
  return *table;
}

// As those of contexts: made while the library is loaded.
[[maybe_unused]] const auto& teams_at_load = teams();

// Pins the team and its context and runs body(team, context).
template <class Body>
mori_status on_team(const mori_shmem_team* handle, mori_error* error, Body&& body) noexcept {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<team_of> pinned, teams().pin(handle));
    MORI_TRY(const std::shared_ptr<context> owner, contexts().pin(pinned->owner));
    return body(*pinned->members, *owner);
  });
}

// Pins the context and keeps the team that make(context) gives.
template <class Make>
mori_status make_team(mori_shmem* owner, mori_shmem_team** out_team, mori_error* error,
                      Make&& make) noexcept {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_out(out_team, "out_team"));
    MORI_TRY(const std::shared_ptr<context> pinned, contexts().pin(owner));
    MORI_CHECK(pinned->check());
    MORI_TRY(std::shared_ptr<team> made, make(*pinned));
    *out_team = teams().insert(std::make_shared<team_of>(team_of{owner, std::move(made)}));
    return {};
  });
}

enum kind : uint64_t { by_color = 1, by_stride = 2, by_list = 3, by_node = 4 };

base::result<std::shared_ptr<team>> of_color(context& c, int32_t color, kind how) {
  MORI_TRY(const std::vector<int32_t> colors, c.gather(color));
  std::vector<int> members;
  for (int pe = 0; pe < c.pe_count(); ++pe)
    if (color >= 0 && colors[static_cast<size_t>(pe)] == color) members.push_back(pe);
  return team::create(c, std::move(members), {how, 0});
}

// Refused alike on all PEs that pass the same: nobody waits for the others then.
base::result<std::shared_ptr<team>> of_members(context& c, std::vector<int32_t> pes, kind how) {
  std::vector<bool> seen(static_cast<size_t>(c.pe_count()), false);
  for (const int32_t pe : pes) {
    if (pe < 0 || pe >= c.pe_count())
      return base::fail(MORI_E_INVALID, "pe {} of the team is outside 0 .. {}", pe,
                        c.pe_count() - 1);
    if (seen[static_cast<size_t>(pe)])
      return base::fail(MORI_E_INVALID, "pe {} is in the team twice", pe);
    seen[static_cast<size_t>(pe)] = true;
  }
  const uint64_t digest = mori::shmem_core::digest_of(pes);
  return team::create(c, std::vector<int>(pes.begin(), pes.end()), {how, digest});
}

}  // namespace

extern "C" {

mori_status mori_shmem_team_by_color(mori_shmem* in_shmem, int32_t color,
                                     mori_shmem_team** out_team, mori_error* error) {
  if (out_team != nullptr) *out_team = nullptr;
  return make_team(in_shmem, out_team, error,
                   [&](context& c) { return of_color(c, color, by_color); });
}

mori_status mori_shmem_team_by_node(mori_shmem* in_shmem, mori_shmem_team** out_team,
                                    mori_error* error) {
  if (out_team != nullptr) *out_team = nullptr;
  return make_team(in_shmem, out_team, error,
                   [&](context& c) { return of_color(c, c.info().node, by_node); });
}

mori_status mori_shmem_team_strided(mori_shmem* in_shmem, int32_t first_pe, int32_t stride,
                                    int32_t pe_count, mori_shmem_team** out_team,
                                    mori_error* error) {
  if (out_team != nullptr) *out_team = nullptr;
  return make_team(
      in_shmem, out_team, error, [&](context& c) -> base::result<std::shared_ptr<team>> {
        if (pe_count < 1 || pe_count > c.pe_count())
          return base::fail(MORI_E_INVALID, "pe_count {} of the team is outside 1 .. {}", pe_count,
                            c.pe_count());
        std::vector<int32_t> pes;
        int64_t pe = first_pe;
        for (int32_t i = 0; i < pe_count; ++i, pe += stride) {
          if (pe < 0 || pe >= c.pe_count())
            return base::fail(MORI_E_INVALID,
                              "team of {} PEs from {} by {}: pe {} is outside 0 .. {}", pe_count,
                              first_pe, stride, pe, c.pe_count() - 1);
          pes.push_back(static_cast<int32_t>(pe));
        }
        return of_members(c, std::move(pes), by_stride);
      });
}

mori_status mori_shmem_team_of_list(mori_shmem* in_shmem, const int32_t* in_pes, int32_t pe_count,
                                    mori_shmem_team** out_team, mori_error* error) {
  if (out_team != nullptr) *out_team = nullptr;
  return make_team(
      in_shmem, out_team, error, [&](context& c) -> base::result<std::shared_ptr<team>> {
        if (pe_count < 1 || pe_count > c.pe_count())
          return base::fail(MORI_E_INVALID, "pe_count {} of the team is outside 1 .. {}", pe_count,
                            c.pe_count());
        MORI_CHECK(base::check_out(in_pes, "in_pes"));
        return of_members(c, std::vector<int32_t>(in_pes, in_pes + pe_count), by_list);
      });
}

void mori_shmem_team_destroy(mori_shmem_team* take_team) {
  if (take_team == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<team_of> taken, teams().remove(take_team));
    MORI_TRY(const std::shared_ptr<context> owner, contexts().pin(taken->owner));
    taken->members->release(*owner);
    return {};
  });
}

mori_status mori_shmem_team_info(const mori_shmem_team* in_team, mori_shmem_team_report* out_report,
                                 mori_error* error) {
  return on_team(in_team, error, [&](team& t, context&) -> base::status {
    mori_shmem_team_report report{};
    report.struct_size = sizeof report;
    report.pe = t.pe();
    report.pe_count = t.pe_count();
    return base::write_struct(out_report, "mori_shmem_team_report", report);
  });
}

mori_status mori_shmem_team_group_pe(const mori_shmem_team* in_team, int32_t pe,
                                     int32_t* out_group_pe, mori_error* error) {
  return on_team(in_team, error, [&](team& t, context&) -> base::status {
    MORI_CHECK(base::check_out(out_group_pe, "out_group_pe"));
    MORI_TRY(*out_group_pe, t.group_pe(pe));
    return {};
  });
}

mori_status mori_shmem_team_translate(const mori_shmem_team* in_from, int32_t pe,
                                      const mori_shmem_team* in_to, int32_t* out_pe,
                                      mori_error* error) {
  return on_team(
      in_from != nullptr ? in_from : in_to, error, [&](team&, context& c) -> base::status {
        MORI_CHECK(base::check_out(out_pe, "out_pe"));
        std::shared_ptr<team_of> from, to;
        if (in_from != nullptr) {
          MORI_TRY(from, teams().pin(in_from));
        }
        if (in_to != nullptr) {
          MORI_TRY(to, teams().pin(in_to));
        }
        if (from && to && from->owner != to->owner)
          return base::fail(MORI_E_INVALID, "the teams are of different contexts");
        int group_pe = pe;
        if (from) {
          MORI_TRY(group_pe, from->members->group_pe(pe));
        }
        if (group_pe < 0 || group_pe >= c.pe_count())
          return base::fail(MORI_E_INVALID, "pe {} is outside 0 .. {}", pe, c.pe_count() - 1);
        *out_pe = to ? to->members->number_of(group_pe) : group_pe;
        return {};
      });
}

mori_status mori_shmem_team_ptr_p2p(const mori_shmem_team* in_team, const void* in_pointer,
                                    int32_t pe, void** out_pointer, mori_error* error) {
  if (out_pointer != nullptr) *out_pointer = nullptr;
  return on_team(in_team, error, [&](team& t, context& c) -> base::status {
    MORI_CHECK(base::check_out(out_pointer, "out_pointer"));
    MORI_TRY(const int group_pe, t.group_pe(pe));
    MORI_TRY(*out_pointer, c.peer_pointer(in_pointer, group_pe));
    return {};
  });
}

mori_status mori_shmem_team_barrier(mori_shmem_team* in_team, mori_error* error) {
  return on_team(in_team, error, [&](team& t, context& c) -> base::status {
    MORI_CHECK(c.check());
    return t.barrier(c);
  });
}

}  // extern "C"
