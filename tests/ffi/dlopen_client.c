/* dlopen_client.c - a C program that binds to the two libraries at run time
 * only: it includes the C headers, links neither, and takes each function's
 * type from its declaration. Two PEs, threads of this process, dispatch one
 * token each way and combine.
 *
 * The other consumers in this folder do the same in their language: PE p sends
 * token t, all of whose elements are 10 * p + t, to expert (p + t) % 2, expert
 * e multiplies by e + 2, and the combined values are compared.
 *
 * usage: dlopen_client LIBMORI_SHMEM.so LIBMORI_EP.so
 */
#include <dlfcn.h>
#include <mori/ep.h>
#include <mori/shmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PES = 2, TOKENS = 2, HIDDEN = 4 };

/* clang-format off */
#define FUNCTIONS(F)                                                          \
  F(mori_shmem_version) F(mori_shmem_status_name)                             \
  F(mori_shmem_unique_id_create) F(mori_shmem_create) F(mori_shmem_destroy)   \
  F(mori_shmem_barrier_all) F(mori_ep_version) F(mori_ep_create)              \
  F(mori_ep_destroy) F(mori_ep_dispatch) F(mori_ep_combine)
/* clang-format on */

static struct {
#define MEMBER(name) __typeof__(&name) name;
  FUNCTIONS(MEMBER)
} lib;

static int load(const char* shmem_path, const char* ep_path) {
  /* shmem first: ep needs it, and finds it loaded. */
  void* shmem = dlopen(shmem_path, RTLD_NOW | RTLD_GLOBAL);
  void* ep = shmem == NULL ? NULL : dlopen(ep_path, RTLD_NOW);
  if (ep == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
#define LOAD(name)                            \
  *(void**)&lib.name = dlsym(ep, #name);      \
  if (lib.name == NULL) {                     \
    fprintf(stderr, "no symbol %s\n", #name); \
    return 0;                                 \
  }
  FUNCTIONS(LOAD)
  return 1;
}

typedef struct worker {
  mori_shmem_unique_id id;
  int32_t pe;
  mori_status status;
  mori_error error;
  int wrong;
} worker;

static mori_status exchange(worker* self, mori_ep* ep) {
  float input[TOKENS * HIDDEN], output[PES * TOKENS * HIDDEN];
  int32_t indices[TOKENS];
  mori_ep_dispatch_args send = {.struct_size = sizeof send, .dtype = MORI_EP_F32};
  mori_ep_dispatch_result received = {.struct_size = sizeof received};
  mori_ep_combine_args back = {.struct_size = sizeof back, .dtype = MORI_EP_F32};
  mori_ep_combine_result combined = {.struct_size = sizeof combined};
  for (int32_t i = 0; i < TOKENS * HIDDEN; ++i) input[i] = (float)(10 * self->pe + i / HIDDEN);
  for (int32_t t = 0; t < TOKENS; ++t) indices[t] = (self->pe + t) % PES;
  send.input = input;
  send.indices = indices;
  send.token_count = TOKENS;
  mori_status status = lib.mori_ep_dispatch(ep, &send, &received, &self->error);
  if (status != MORI_OK) return status;
  for (uint64_t i = 0; i < received.recv_token_count * HIDDEN; ++i)
    output[i] = ((const float*)received.out)[i] * (float)(self->pe + 2);
  back.input = output;
  back.indices = indices;
  back.token_count = TOKENS;
  back.input_row_count = received.recv_token_count;
  status = lib.mori_ep_combine(ep, &back, &combined, &self->error);
  for (int32_t i = 0; status == MORI_OK && i < TOKENS * HIDDEN; ++i)
    self->wrong += ((const float*)combined.out)[i] != input[i] * (float)(indices[i / HIDDEN] + 2);
  return status;
}

static void* run_pe(void* argument) {
  worker* self = argument;
  mori_shmem* shmem = NULL;
  mori_ep* ep = NULL;
  mori_shmem_options options = {.struct_size = sizeof options, .pe_count = PES};
  mori_ep_config config = {.struct_size = sizeof config, .hidden_dim = HIDDEN};
  options.pe = self->pe;
  options.heap_bytes = 1u << 20;
  config.max_input_token_count = TOKENS;
  config.expert_per_rank_count = 1;
  config.expert_per_token_count = 1;
  self->status = lib.mori_shmem_create(&self->id, &options, &shmem, &self->error);
  if (self->status == MORI_OK) self->status = lib.mori_ep_create(shmem, &config, &ep, &self->error);
  if (self->status == MORI_OK) self->status = exchange(self, ep);
  if (self->status == MORI_OK) self->status = lib.mori_shmem_barrier_all(shmem, &self->error);
  lib.mori_ep_destroy(ep);
  lib.mori_shmem_destroy(shmem);
  return NULL;
}

/* What a mistake looks like to a caller. */
static int refuses_zero_pes(void) {
  mori_shmem_unique_id id = {{0}};
  mori_shmem_options options = {.struct_size = sizeof options};
  mori_shmem* shmem = NULL;
  mori_error error = MORI_ERROR_INIT;
  mori_status status = lib.mori_shmem_create(&id, &options, &shmem, &error);
  printf("%s: %s\n", lib.mori_shmem_status_name(status), error.message);
  return status == MORI_E_INVALID && shmem == NULL && error.message[0] != '\0';
}

int main(int argc, char** argv) {
  static worker workers[PES];
  pthread_t threads[PES];
  mori_error error = MORI_ERROR_INIT;
  mori_shmem_unique_id id;
  int good = argc == 3 && load(argv[1], argv[2]);
  if (!good || lib.mori_shmem_unique_id_create(&id, &error) != MORI_OK) {
    fprintf(stderr, "usage: dlopen_client SHMEM.so EP.so; %s\n", error.message);
    return 1;
  }
  printf("mori-shmem %#x, mori-ep %#x\n", lib.mori_shmem_version(), lib.mori_ep_version());
  good = refuses_zero_pes();
  for (int32_t pe = 0; pe < PES; ++pe) {
    workers[pe].id = id;
    workers[pe].pe = pe;
    workers[pe].error.struct_size = sizeof workers[pe].error;
    if (pthread_create(&threads[pe], NULL, run_pe, &workers[pe]) != 0) return 1;
  }
  for (int32_t pe = 0; pe < PES; ++pe) {
    pthread_join(threads[pe], NULL);
    printf("PE %d: %s%s, %d wrong values\n", pe, lib.mori_shmem_status_name(workers[pe].status),
           workers[pe].error.message, workers[pe].wrong);
    good = good && workers[pe].status == MORI_OK && workers[pe].wrong == 0;
  }
  puts(good ? "ok - C by dlopen" : "not ok - C by dlopen");
  return good ? 0 : 1;
}
