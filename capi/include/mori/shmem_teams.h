/* mori/shmem_teams.h - teams: numbered subsets of the PEs of one group, with
 * a barrier and translation of numbers and addresses. Part of mori/shmem.h,
 * which includes it; read that first.
 *
 * Making a team is collective over the whole group: all PEs call the same
 * function with the same arguments (only a color may differ), verified. A PE
 * that is not in the team gets a handle too, whose own number is -1: it can
 * translate, but not take part in a barrier. Memory operations take numbers of
 * the group; mori_shmem_team_group_pe gives them. Teams of PEs on several
 * nodes work where puts with signal do.
 */
#ifndef MORI_SHMEM_TEAMS_H
#define MORI_SHMEM_TEAMS_H

#include <mori/shmem_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* One team as one PE sees it. Holds a few symmetric words; after its context
 * is destroyed it answers MORI_E_STATE. */
typedef struct mori_shmem_team mori_shmem_team;

/* Report of mori_shmem_team_info. */
typedef struct mori_shmem_team_report {
  uint64_t struct_size;
  int32_t pe;       /* own number in the team; -1: not in it                 */
  int32_t pe_count; /* of the team                                           */
} mori_shmem_team_report;

/* PEs of equal color, in order of their numbers; a negative color makes a team
 * of no PE. The caller owns *out_team. any-thread, but all PEs must make teams
 * and allocate in the same order. Blocks. Fails with MORI_E_STATE,
 * MORI_E_INVALID, MORI_E_MISMATCH (PEs make different teams), and as
 * mori_shmem_malloc does, on all PEs. */
MORI_API mori_status mori_shmem_team_by_color(mori_shmem *in_shmem,
                                              int32_t color,
                                              mori_shmem_team **out_team,
                                              mori_error *error);

/* PEs of this PE's node (mori_shmem_report.node). any-thread. Blocks.
 * Fails with what mori_shmem_team_by_color fails with. */
MORI_API mori_status mori_shmem_team_by_node(mori_shmem *in_shmem,
                                             mori_shmem_team **out_team,
                                             mori_error *error);

/* PEs first_pe, first_pe + stride, ...: pe_count of them. any-thread. Blocks.
 * stride may be negative, and anything for one PE. Fails with what
 * mori_shmem_team_by_color fails with. */
MORI_API mori_status mori_shmem_team_strided(mori_shmem *in_shmem,
                                             int32_t first_pe, int32_t stride,
                                             int32_t pe_count,
                                             mori_shmem_team **out_team,
                                             mori_error *error);

/* The PEs of a list, none twice; their places are their numbers. any-thread.
 * Blocks. Fails with what mori_shmem_team_by_color fails with. */
MORI_API mori_status mori_shmem_team_of_list(mori_shmem *in_shmem,
                                             const int32_t *in_pes,
                                             int32_t pe_count,
                                             mori_shmem_team **out_team,
                                             mori_error *error);

/* Frees its words: as with mori_shmem_free, all PEs must do so before the next
 * allocation. Accepts NULL and dead handles; never fails. any-thread.
 * Never blocks. */
MORI_API void mori_shmem_team_destroy(mori_shmem_team *take_team);

/* Own number and size. any-thread. Never blocks. Fails with MORI_E_STATE,
 * MORI_E_INVALID. */
MORI_API mori_status mori_shmem_team_info(const mori_shmem_team *in_team,
                                          mori_shmem_team_report *out_report,
                                          mori_error *error);

/* Number in the group of PE `pe` of the team. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_shmem_team_group_pe(const mori_shmem_team *in_team,
                                              int32_t pe, int32_t *out_group_pe,
                                              mori_error *error);

/* Number in team in_to of PE `pe` of team in_from; -1 when it is not in it.
 * NULL for a team is the whole group; not for both. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID (pe; teams of different contexts). */
MORI_API mori_status mori_shmem_team_translate(const mori_shmem_team *in_from,
                                               int32_t pe,
                                               const mori_shmem_team *in_to,
                                               int32_t *out_pe,
                                               mori_error *error);

/* mori_shmem_ptr_p2p for PE `pe` of the team. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID (pe), MORI_E_NOT_FOUND (pointer). */
MORI_API mori_status mori_shmem_team_ptr_p2p(const mori_shmem_team *in_team,
                                             const void *in_pointer,
                                             int32_t pe, void **out_pointer,
                                             mori_error *error);

/* mori_shmem_barrier_all among the PEs of the team; others do not take part
 * and are not waited for. one-thread-per-handle. Blocks, at most
 * wait_timeout_ns. Fails with MORI_E_STATE (also: not in the team),
 * MORI_E_TIMEOUT, MORI_E_PEER_DEAD, MORI_E_ABORTED, MORI_E_UNAVAILABLE (a PE
 * of the team cannot be reached). */
MORI_API mori_status mori_shmem_team_barrier(mori_shmem_team *in_team,
                                             mori_error *error);

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_TEAMS_H */
