/* dlopen_client.c - a C program that binds to the three libraries at run time
 * only: it includes the C headers, links none, and takes each function's type
 * from its declaration. Two PEs, threads of this process, dispatch one token
 * each way and combine.
 *
 * The other consumers in this folder do the same in their language: PE p sends
 * token t, all of whose elements are 10 * p + t, to expert (p + t) % 2, expert
 * e multiplies by e + 2, and the combined values are compared. An engine
 * "left" writes 4096 bytes, byte i being 7 * i + 1 modulo 256, to an engine
 * "right" in two pieces that change places; right is notified once. Then the
 * libraries are asked for what a later release might have: a struct that is
 * longer by eight bytes that are not zero, which is MORI_E_VERSION.
 *
 * usage: dlopen_client LIBMORI_SHMEM.so LIBMORI_EP.so LIBMORI_IO.so
 */
#include <dlfcn.h>
#include <mori/ep.h>
#include <mori/io.h>
#include <mori/shmem.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PES = 2, TOKENS = 2, HIDDEN = 4, BYTES = 4096 };

/* clang-format off */
#define FUNCTIONS(F)                                                          \
  F(mori_shmem_version) F(mori_shmem_status_name)                             \
  F(mori_shmem_unique_id_create) F(mori_shmem_create) F(mori_shmem_destroy)   \
  F(mori_shmem_barrier_all) F(mori_ep_version) F(mori_ep_create)              \
  F(mori_ep_destroy) F(mori_ep_dispatch) F(mori_ep_combine)
#define IO_FUNCTIONS(F)                                                       \
  F(mori_io_version) F(mori_io_status_name) F(mori_io_create)                 \
  F(mori_io_destroy) F(mori_io_backend_create) F(mori_io_memory_register)     \
  F(mori_io_desc) F(mori_io_memory_desc) F(mori_io_remote_register)           \
  F(mori_io_session_create) F(mori_io_session_destroy) F(mori_io_submit)      \
  F(mori_io_event_fd) F(mori_io_transfer_wait) F(mori_io_transfer_release) F(mori_io_inbound_pop)
/* clang-format on */

static struct {
#define MEMBER(name) __typeof__(&name) name;
  FUNCTIONS(MEMBER)
  IO_FUNCTIONS(MEMBER)
} lib;

static int load(const char* shmem_path, const char* ep_path, const char* io_path) {
  /* shmem first: ep needs it, and finds it loaded. */
  void* shmem = dlopen(shmem_path, RTLD_NOW | RTLD_GLOBAL);
  void* ep = shmem == NULL ? NULL : dlopen(ep_path, RTLD_NOW);
  void* io = ep == NULL ? NULL : dlopen(io_path, RTLD_NOW);
  void* from = ep;
  if (io == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
#define LOAD(name)                            \
  *(void**)&lib.name = dlsym(from, #name);    \
  if (lib.name == NULL) {                     \
    fprintf(stderr, "no symbol %s\n", #name); \
    return 0;                                 \
  }
  FUNCTIONS(LOAD)
  from = io;
  IO_FUNCTIONS(LOAD)
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

/* One side of a transfer, and its descriptors, which are bytes. */
typedef struct side {
  mori_io* io;
  uint32_t id;
  char desc[4096], memory[4096];
  uint64_t desc_bytes, memory_bytes;
} side;

static mori_status open_side(side* self, const char* key, void* buffer, mori_error* error) {
  mori_io_options options = {.struct_size = sizeof options, .in_host = "127.0.0.1"};
  options.in_key = key;
  self->desc_bytes = sizeof self->desc;
  self->memory_bytes = sizeof self->memory;
  mori_status status = lib.mori_io_create(&options, &self->io, error);
  if (status == MORI_OK)
    status = lib.mori_io_backend_create(self->io, MORI_IO_BACKEND_TCP, NULL, error);
  if (status == MORI_OK)
    status = lib.mori_io_memory_register(self->io, buffer, BYTES, MORI_IO_LOCATION_CPU, -1, 0,
                                         &self->id, error);
  if (status == MORI_OK) status = lib.mori_io_desc(self->io, self->desc, &self->desc_bytes, error);
  if (status == MORI_OK)
    status = lib.mori_io_memory_desc(self->io, self->id, self->memory, &self->memory_bytes, error);
  return status;
}

static mori_status write_halves(mori_io_session* session, mori_error* error) {
  uint64_t from[] = {0, BYTES / 2}, to[] = {BYTES / 2, 0}, sizes[] = {BYTES / 2, BYTES / 2};
  mori_io_request request = {.struct_size = sizeof request, .operation = MORI_IO_WRITE, .uid = 9};
  mori_io_transfer* transfer = NULL;
  request.piece_count = 2;
  request.in_local_offsets = from;
  request.in_remote_offsets = to;
  request.in_sizes_bytes = sizes;
  mori_status status = lib.mori_io_submit(session, &request, &transfer, error);
  if (status != MORI_OK) return status;
  const mori_io_transfer* waited = transfer;
  status = lib.mori_io_transfer_wait(&waited, 1, 30000000000u, error);
  lib.mori_io_transfer_release(transfer);
  return status;
}

/* Notifications make a descriptor readable: it is waited for, ten seconds at most. */
static mori_status hear(mori_io* io, mori_io_inbound* told, mori_error* error) {
  struct pollfd event = {.events = POLLIN};
  mori_status status = lib.mori_io_event_fd(io, &event.fd, error);
  if (status != MORI_OK) return status;
  poll(&event, 1, 10000);
  return lib.mori_io_inbound_pop(io, "left", 9, told, error);
}

static int transfers(void) {
  static unsigned char source[BYTES], sink[BYTES];
  static side left, right;
  mori_error error = MORI_ERROR_INIT;
  mori_io_session* session = NULL;
  mori_io_inbound told = {.struct_size = sizeof told};
  int wrong = 0;
  for (int i = 0; i < BYTES; ++i) source[i] = (unsigned char)(7 * i + 1);
  mori_status status = open_side(&left, "left", source, &error);
  if (status == MORI_OK) status = open_side(&right, "right", sink, &error);
  if (status == MORI_OK)
    status = lib.mori_io_remote_register(left.io, right.desc, right.desc_bytes, &error);
  if (status == MORI_OK)
    status = lib.mori_io_session_create(left.io, left.id, right.memory, right.memory_bytes, NULL,
                                        &session, &error);
  if (status == MORI_OK) status = write_halves(session, &error);
  if (status == MORI_OK) status = hear(right.io, &told, &error);
  for (int i = 0; i < BYTES; ++i) wrong += sink[i] != source[(i + BYTES / 2) % BYTES];
  printf("io: %s%s, %d wrong bytes, %d bytes announced\n", lib.mori_io_status_name(status),
         error.message, wrong, (int)told.size_bytes);
  lib.mori_io_session_destroy(session);
  lib.mori_io_destroy(left.io);
  lib.mori_io_destroy(right.io);
  return status == MORI_OK && wrong == 0 && told.size_bytes == BYTES;
}

/* What a program of a later release meets, which sets a field unknown here. */
static int refuses_later_struct(void) {
  struct {
    mori_io_options today;
    uint64_t tomorrow;
  } options = {.today = {.struct_size = sizeof options, .in_key = "later"}, .tomorrow = 1};
  mori_io* io = NULL;
  mori_error error = MORI_ERROR_INIT;
  mori_status status = lib.mori_io_create(&options.today, &io, &error);
  printf("%s: %s\n", lib.mori_io_status_name(status), error.message);
  return status == MORI_E_VERSION && io == NULL && strstr(error.message, "80 bytes") != NULL;
}

int main(int argc, char** argv) {
  static worker workers[PES];
  pthread_t threads[PES];
  mori_error error = MORI_ERROR_INIT;
  mori_shmem_unique_id id;
  int good = argc == 4 && load(argv[1], argv[2], argv[3]);
  if (!good || lib.mori_shmem_unique_id_create(&id, &error) != MORI_OK) {
    fprintf(stderr, "usage: dlopen_client SHMEM.so EP.so IO.so; %s\n", error.message);
    return 1;
  }
  printf("mori-shmem %#x, mori-ep %#x, mori-io %#x\n", lib.mori_shmem_version(),
         lib.mori_ep_version(), lib.mori_io_version());
  good = refuses_zero_pes() && refuses_later_struct() && transfers();
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
