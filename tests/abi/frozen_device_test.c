/* frozen_device_test.c - a kernel of an earlier release against today's library. Compiled against
 * the headers of release 0.1.0, it speaks level 1 of the device protocol with code of its own, as
 * kernels do that were compiled then: puts, signals, waits that end, and a fault that host calls
 * report. PEs are threads.
 *
 * usage: frozen_device_test
 */
#define _GNU_SOURCE /* syscall, clock_gettime */
#include <linux/futex.h>
#include <mori/shmem.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if MORI_SHMEM_DEVICE_LEVEL != 1 || MORI_SHMEM_VERSION_MINOR != 1
#error "this is to be compiled against the headers of 0.1.0"
#endif

enum { PES = 4, ROUNDS = 200, WORDS = 1000 };

typedef mori_shmem_device_state_v1 state;

/* One PE's memory: data from each other PE, and a signal from each. */
typedef struct block {
  uint64_t data[PES][WORDS];
  uint64_t signal[PES][8];
} block;

static int failures;

static void expect(int good, const char* what, const char* text) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, text);
  __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What a kernel does: the protocol as mori/shmem_device.h of 0.1.0 states it. */

static void* at_peer(const state* s, void* symmetric, int pe) {
  const uint64_t base = ((const uint64_t*)s->peer_bases)[pe];
  return base == 0 ? NULL : (void*)((uint64_t)symmetric - s->heap_base + base);
}

static void fault(const state* s, int32_t status, int32_t operation, int32_t pe, uint64_t awaited,
                  uint64_t seen) {
  mori_shmem_fault* record = (mori_shmem_fault*)s->fault;
  uint64_t none = 0;
  if (!__atomic_compare_exchange_n(&record->claimed, &none, 1, 0, __ATOMIC_ACQ_REL,
                                   __ATOMIC_RELAXED))
    return;
  record->status = status;
  record->operation = operation;
  record->pe = pe;
  record->awaited = awaited;
  record->seen = seen;
  __atomic_store_n(&record->claimed, 2, __ATOMIC_RELEASE);
}

static int put_signal(const state* s, void* target, const void* source, uint64_t bytes,
                      uint64_t* signal, uint64_t value, int pe) {
  void* there = at_peer(s, target, pe);
  if (there == NULL) {
    fault(s, MORI_E_UNAVAILABLE, MORI_SHMEM_OP_PUT_SIGNAL, pe, 0, 0);
    return 0;
  }
  memcpy(there, source, bytes);
  __atomic_store_n((uint64_t*)at_peer(s, signal, pe), value, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  mori_shmem_sync_v1* sync = (mori_shmem_sync_v1*)((const uint64_t*)s->peer_bases)[pe];
  __atomic_fetch_add(&sync->doorbell, 1, __ATOMIC_RELEASE);
  if (__atomic_load_n(&sync->waiter_count, __ATOMIC_ACQUIRE) != 0)
    syscall(SYS_futex, &sync->doorbell, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
  return 1;
}

/* 1: met. */
static int wait_for(const state* s, const uint64_t* word, uint64_t value, int pe) {
  const uint64_t began = now_ns();
  for (;;) {
    const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (seen >= value) return 1;
    if (__atomic_load_n((const uint64_t*)s->abort_word, __ATOMIC_ACQUIRE) != 0) return 0;
    if (__atomic_load_n((const uint32_t*)s->peer_left + pe, __ATOMIC_ACQUIRE) != 0) {
      fault(s, MORI_E_PEER_DEAD, MORI_SHMEM_OP_WAIT, pe, value, seen);
      return 0;
    }
    if (now_ns() - began > s->wait_budget_ns) {
      fault(s, MORI_E_TIMEOUT, MORI_SHMEM_OP_WAIT, pe, value, seen);
      return 0;
    }
    sched_yield();
  }
}

/* The PEs. */

typedef struct member {
  const mori_shmem_unique_id* id;
  int pe;
  int disable_p2p;
  pthread_barrier_t* all_are_in; /* a fault would reach those still in the group's own */
} member;

static mori_shmem* join(const member* m, block** memory, state* s) {
  mori_error error = MORI_ERROR_INIT;
  mori_shmem_options options = {.struct_size = sizeof options,
                                .pe = m->pe,
                                .pe_count = PES,
                                .heap_bytes = 4u << 20,
                                .wait_timeout_ns = 20000000000u,
                                .disable_p2p = m->disable_p2p};
  mori_shmem* shmem = NULL;
  void* pointer = NULL;
  expect(mori_shmem_create(m->id, &options, &shmem, &error) == MORI_OK, "create", error.message);
  expect(mori_shmem_malloc(shmem, sizeof(block), &pointer, &error) == MORI_OK, "malloc",
         error.message);
  memset(s, 0, sizeof *s);
  expect(mori_shmem_device_state(shmem, 1, s, sizeof *s, &error) == MORI_OK, "state of level 1",
         error.message);
  expect(s->level == 1 && s->struct_size == sizeof *s, "state", "is not of level 1");
  expect(s->my_pe == m->pe && s->pe_count == PES, "state", "names another PE");
  if (pointer != NULL) memset(pointer, 0, sizeof(block));
  *memory = pointer;
  expect(mori_shmem_barrier_all(shmem, &error) == MORI_OK, "barrier", error.message);
  pthread_barrier_wait(m->all_are_in);
  return shmem;
}

static void* exchange(void* argument) {
  const member* m = argument;
  state s;
  block* own;
  mori_shmem* shmem = join(m, &own, &s);
  uint64_t words[WORDS];
  for (uint64_t round = 1; own != NULL && round <= ROUNDS; ++round) {
    for (int pe = 0; pe < PES; ++pe) {
      for (uint64_t i = 0; i < WORDS; ++i) words[i] = round << 32 | (uint64_t)m->pe << 16 | i;
      put_signal(&s, own->data[m->pe], words, sizeof words, own->signal[m->pe], round, pe);
    }
    for (int pe = 0; pe < PES; ++pe) {
      expect(wait_for(&s, own->signal[pe], round, pe), "wait", "ended before the signal");
      for (uint64_t i = 0; i < WORDS; ++i)
        if (own->data[pe][i] != (round << 32 | (uint64_t)pe << 16 | i)) {
          expect(0, "data", "is not what the signal promised");
          break;
        }
    }
    mori_error error = MORI_ERROR_INIT;
    expect(mori_shmem_barrier_all(shmem, &error) == MORI_OK, "barrier", error.message);
  }
  mori_shmem_destroy(shmem);
  return NULL;
}

/* PE 1 aborts while the others' kernels wait: they end, and host calls say who it was. */
static void* aborted(void* argument) {
  const member* m = argument;
  state s;
  block* own;
  mori_shmem* shmem = join(m, &own, &s);
  mori_error error = MORI_ERROR_INIT;
  if (m->pe == 1)
    mori_shmem_abort(shmem, NULL);
  else
    expect(!wait_for(&s, own->signal[2], 1, 2), "wait", "met, though nobody signals");
  expect(mori_shmem_check(shmem, &error) == MORI_E_ABORTED, "check", error.message);
  expect(strstr(error.message, "PE 1") != NULL, "check does not name PE 1", error.message);
  mori_shmem_destroy(shmem);
  return NULL;
}

/* A kernel of level 1 knows mapped peers alone; what it records, host calls report. */
static void* unmapped(void* argument) {
  const member* m = argument;
  state s;
  block* own;
  mori_shmem* shmem = join(m, &own, &s);
  mori_error error = MORI_ERROR_INIT;
  const int other = (m->pe + 1) % PES;
  expect(((const int32_t*)s.transports)[other] != MORI_SHMEM_TRANSPORT_P2P, "transport",
         "is P2P, though that is disabled");
  expect(((const uint64_t*)s.peer_bases)[other] == 0, "peer", "is mapped");
  expect(((const uint64_t*)s.peer_bases)[m->pe] == s.heap_base, "own heap", "is not mapped");
  if (m->pe == 0) {
    uint64_t value = 1;
    put_signal(&s, own->data[0], &value, sizeof value, own->signal[0], 1, other);
    expect(mori_shmem_check(shmem, &error) == MORI_E_UNAVAILABLE, "check", error.message);
    expect(strstr(error.message, "PE 1") != NULL, "check does not name PE 1", error.message);
  } else {
    expect(!wait_for(&s, own->signal[0], 1, 0), "wait", "met, though PE 0 could not signal");
  }
  mori_shmem_destroy(shmem);
  return NULL;
}

static void run(const char* name, void* (*body)(void*), int disable_p2p) {
  mori_shmem_unique_id id;
  mori_error error = MORI_ERROR_INIT;
  const int before = failures;
  expect(mori_shmem_unique_id_create(&id, &error) == MORI_OK, "id", error.message);
  pthread_t threads[PES];
  member members[PES];
  pthread_barrier_t all_are_in;
  if (pthread_barrier_init(&all_are_in, NULL, PES) != 0) abort();
  for (int pe = 0; pe < PES; ++pe) {
    members[pe] =
        (member){.id = &id, .pe = pe, .disable_p2p = disable_p2p, .all_are_in = &all_are_in};
    if (pthread_create(&threads[pe], NULL, body, &members[pe]) != 0) abort();
  }
  for (int pe = 0; pe < PES; ++pe) pthread_join(threads[pe], NULL);
  pthread_barrier_destroy(&all_are_in);
  printf("%s - a kernel of device level 1: %s\n", failures == before ? "ok" : "not ok", name);
}

int main(void) {
  run("puts with signals, waits", exchange, 0);
  run("an abort ends waits", aborted, 0);
  run("a peer that is not mapped is a fault", unmapped, 1);
  return failures != 0;
}
