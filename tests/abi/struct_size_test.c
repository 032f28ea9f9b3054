/* struct_size_test.c - the growth rule of option and report structs, as
 * mori/base.h states it, against the real libraries and for every struct that
 * begins with struct_size: exact, longer with a zero tail, longer with a dirty
 * tail, shorter than the first release, zero, absurd, NULL.
 *
 * A subject fills a valid struct and makes a call with it; everything else is
 * done once, below.
 */
#include <mori/ep.h>
#include <mori/io.h>
#include <mori/shmem.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sized_structs.h"

enum { TAIL_BYTES = 64, FILLER = 0xA5, MAX_STRUCT_BYTES = 2048 };

/* Every call needs one PE with a heap and an operator, or an engine that knows itself. */
static mori_shmem* shmem;
static mori_ep* ep;
static uint64_t* words;
static mori_io* io;
static mori_io_session* session;
static mori_io_transfer* transfer;
static unsigned char io_memory[64], io_desc[4096], io_memory_desc[4096];
static uint64_t io_desc_bytes = sizeof io_desc, io_memory_desc_bytes = sizeof io_memory_desc;
static uint32_t io_region;
static const uint64_t io_offset, io_size = 8;
static const float token[16];
static const int32_t routing[1];

typedef struct subject {
  const char* name;
  uint64_t size_bytes;
  uint64_t first_bytes; /* its size in the first release */
  int is_report;        /* the library writes it */
  void (*fill)(void* in_struct);
  mori_status (*call)(void* in_struct, mori_error* error);
} subject;

static void fill_nothing(void* in_struct) { (void)in_struct; }

static void fill_options(void* in_struct) {
  mori_shmem_options* options = in_struct;
  options->pe_count = 1;
  options->heap_bytes = 1u << 20;
}
static mori_status call_create(void* in_struct, mori_error* error) {
  mori_shmem_unique_id id;
  mori_shmem* made = NULL;
  mori_status status = mori_shmem_unique_id_create(&id, error);
  if (status == MORI_OK) status = mori_shmem_create(&id, in_struct, &made, error);
  mori_shmem_destroy(made);
  return status;
}

static mori_status call_info(void* in_struct, mori_error* error) {
  return mori_shmem_info(shmem, in_struct, error);
}
static mori_status call_heap_stats(void* in_struct, mori_error* error) {
  return mori_shmem_heap_stats(shmem, in_struct, error);
}
static mori_status call_team_info(void* in_struct, mori_error* error) {
  mori_shmem_team* team = NULL;
  mori_status status = mori_shmem_team_by_node(shmem, &team, error);
  if (status == MORI_OK) status = mori_shmem_team_info(team, in_struct, error);
  mori_shmem_team_destroy(team);
  return status;
}
static mori_status call_peer_info(void* in_struct, mori_error* error) {
  return mori_shmem_peer_info(shmem, 0, in_struct, error);
}

/* An empty queue is an answer about the queue, not about the struct. */
static mori_status call_shmem_log(void* in_struct, mori_error* error) {
  mori_status status = mori_shmem_log_next(in_struct, error);
  return status == MORI_E_AGAIN ? MORI_OK : status;
}
static mori_status call_ep_log(void* in_struct, mori_error* error) {
  mori_status status = mori_ep_log_next(in_struct, error);
  return status == MORI_E_AGAIN ? MORI_OK : status;
}

static void fill_put_signal(void* in_struct) {
  mori_shmem_put_signal_args* args = in_struct;
  args->target = words;
  args->source = token;
  args->size_bytes = 8;
  args->signal = words + 1;
  args->signal_op = MORI_SHMEM_SIGNAL_SET;
}
static mori_status call_put_signal(void* in_struct, mori_error* error) {
  return mori_shmem_put_signal(shmem, in_struct, error);
}

static void fill_atomic(void* in_struct) {
  mori_shmem_atomic_args* args = in_struct;
  args->target = words + 2;
  args->op = MORI_SHMEM_AMO_FETCH_ADD;
  args->size_bytes = 8;
}
static mori_status call_atomic(void* in_struct, mori_error* error) {
  return mori_shmem_atomic(shmem, in_struct, NULL, error);
}

static void fill_wait(void* in_struct) {
  mori_shmem_wait_args* args = in_struct;
  args->address = words + 3;
  args->size_bytes = 8;
  args->compare = MORI_SHMEM_CMP_EQ;
}
static mori_status call_wait(void* in_struct, mori_error* error) {
  return mori_shmem_wait_until(shmem, in_struct, NULL, error);
}

static void fill_config(void* in_struct) {
  mori_ep_config* config = in_struct;
  config->hidden_dim = 16;
  config->max_input_token_count = 1;
  config->expert_per_rank_count = 1;
  config->expert_per_token_count = 1;
}
static mori_status call_config(void* in_struct, mori_error* error) {
  mori_ep* made = NULL;
  mori_status status = mori_ep_create(shmem, in_struct, &made, error);
  mori_ep_destroy(made);
  return status;
}
static mori_status call_query(void* in_struct, mori_error* error) {
  mori_ep_memory memory = {.struct_size = sizeof memory};
  return mori_ep_memory_query(in_struct, 1, &memory, error);
}
static mori_status call_memory(void* in_struct, mori_error* error) {
  mori_ep_config config = {.struct_size = sizeof config};
  fill_config(&config);
  return mori_ep_memory_query(&config, 1, in_struct, error);
}

static void fill_dispatch(void* in_struct) {
  mori_ep_dispatch_args* args = in_struct;
  args->input = token;
  args->indices = routing;
  args->token_count = 1;
  args->dtype = MORI_EP_F32;
}
static mori_status call_dispatch(void* in_struct, mori_error* error) {
  mori_ep_dispatch_result result = {.struct_size = sizeof result};
  return mori_ep_dispatch(ep, in_struct, &result, error);
}
static mori_status call_dispatch_result(void* in_struct, mori_error* error) {
  mori_ep_dispatch_args args = {.struct_size = sizeof args};
  fill_dispatch(&args);
  return mori_ep_dispatch(ep, &args, in_struct, error);
}

static void fill_combine(void* in_struct) {
  mori_ep_combine_args* args = in_struct;
  args->input = token;
  args->indices = routing;
  args->token_count = 1;
  args->input_row_count = 1;
  args->dtype = MORI_EP_F32;
}
/* A combine needs a dispatch before it. */
static mori_status dispatch_first(mori_error* error) {
  mori_ep_dispatch_args args = {.struct_size = sizeof args};
  fill_dispatch(&args);
  return call_dispatch(&args, error);
}
static mori_status call_combine(void* in_struct, mori_error* error) {
  mori_ep_combine_result result = {.struct_size = sizeof result};
  mori_status status = dispatch_first(error);
  return status == MORI_OK ? mori_ep_combine(ep, in_struct, &result, error) : status;
}
static mori_status call_combine_result(void* in_struct, mori_error* error) {
  mori_ep_combine_args args = {.struct_size = sizeof args};
  mori_status status = dispatch_first(error);
  fill_combine(&args);
  return status == MORI_OK ? mori_ep_combine(ep, &args, in_struct, error) : status;
}

static mori_status call_io_log(void* in_struct, mori_error* error) {
  mori_status status = mori_io_log_next(in_struct, error);
  return status == MORI_E_AGAIN ? MORI_OK : status;
}
static void fill_io_options(void* in_struct) {
  mori_io_options* options = in_struct;
  options->in_key = "other";
  options->in_host = "127.0.0.1";
}
static mori_status call_io_create(void* in_struct, mori_error* error) {
  mori_io* made = NULL;
  mori_status status = mori_io_create(in_struct, &made, error);
  mori_io_destroy(made);
  return status;
}
/* NULL means defaults: no fault to be found. */
static mori_status call_io_backend(void* in_struct, mori_error* error) {
  mori_status status = mori_io_backend_create(io, MORI_IO_BACKEND_TCP, in_struct, error);
  return in_struct == NULL && status == MORI_OK ? MORI_E_INVALID : status;
}
static mori_status call_io_inspect(void* in_struct, mori_error* error) {
  return mori_io_desc_inspect(io_desc, io_desc_bytes, in_struct, error);
}
static mori_status call_io_memory_inspect(void* in_struct, mori_error* error) {
  return mori_io_memory_inspect(io_memory_desc, io_memory_desc_bytes, in_struct, error);
}
static mori_status call_io_session(void* in_struct, mori_error* error) {
  mori_io_session* made = NULL;
  mori_status status = mori_io_session_create(io, io_region, io_memory_desc, io_memory_desc_bytes,
                                              in_struct, &made, error);
  mori_io_session_destroy(made);
  return in_struct == NULL && status == MORI_OK ? MORI_E_INVALID : status;
}
static void fill_io_request(void* in_struct) {
  mori_io_request* request = in_struct;
  request->operation = MORI_IO_WRITE;
  request->piece_count = 1;
  request->in_local_offsets = request->in_remote_offsets = &io_offset;
  request->in_sizes_bytes = &io_size;
}
static mori_status call_io_submit(void* in_struct, mori_error* error) {
  return mori_io_submit(session, in_struct, NULL, error);
}
static mori_status call_io_transfer(void* in_struct, mori_error* error) {
  return mori_io_transfer_info(transfer, in_struct, error);
}
static mori_status call_io_stats(void* in_struct, mori_error* error) {
  return mori_io_session_stats(session, in_struct, error);
}
static mori_status call_io_inbound(void* in_struct, mori_error* error) {
  mori_status status = mori_io_inbound_next(io, in_struct, error);
  return status == MORI_E_AGAIN ? MORI_OK : status;
}

#define SUBJECT(type, is_report, fill, call) \
  {#type, sizeof(type), sizeof(type), is_report, fill, call}
/* A struct that has grown: `added` is its first later field. */
#define GROWN(type, added, is_report, fill, call) \
  {#type, sizeof(type), offsetof(type, added), is_report, fill, call}
static const subject subjects[] = {
    SUBJECT(mori_log_record, 1, fill_nothing, call_shmem_log),
    SUBJECT(mori_log_record, 1, fill_nothing, call_ep_log),
    SUBJECT(mori_shmem_options, 0, fill_options, call_create),
    GROWN(mori_shmem_report, gpu_ordinal, 1, fill_nothing, call_info),
    SUBJECT(mori_shmem_heap_report, 1, fill_nothing, call_heap_stats),
    SUBJECT(mori_shmem_team_report, 1, fill_nothing, call_team_info),
    SUBJECT(mori_shmem_peer_report, 1, fill_nothing, call_peer_info),
    SUBJECT(mori_shmem_put_signal_args, 0, fill_put_signal, call_put_signal),
    SUBJECT(mori_shmem_atomic_args, 0, fill_atomic, call_atomic),
    SUBJECT(mori_shmem_wait_args, 0, fill_wait, call_wait),
    SUBJECT(mori_ep_config, 0, fill_config, call_config),
    SUBJECT(mori_ep_config, 0, fill_config, call_query),
    SUBJECT(mori_ep_memory, 1, fill_nothing, call_memory),
    SUBJECT(mori_ep_dispatch_args, 0, fill_dispatch, call_dispatch),
    SUBJECT(mori_ep_dispatch_result, 1, fill_nothing, call_dispatch_result),
    SUBJECT(mori_ep_combine_args, 0, fill_combine, call_combine),
    SUBJECT(mori_ep_combine_result, 1, fill_nothing, call_combine_result),
    SUBJECT(mori_log_record, 1, fill_nothing, call_io_log),
    SUBJECT(mori_io_options, 0, fill_io_options, call_io_create),
    SUBJECT(mori_io_backend_options, 0, fill_nothing, call_io_backend),
    SUBJECT(mori_io_engine_report, 1, fill_nothing, call_io_inspect),
    SUBJECT(mori_io_memory_report, 1, fill_nothing, call_io_memory_inspect),
    SUBJECT(mori_io_session_options, 0, fill_nothing, call_io_session),
    SUBJECT(mori_io_request, 0, fill_io_request, call_io_submit),
    SUBJECT(mori_io_transfer_report, 1, fill_nothing, call_io_transfer),
    SUBJECT(mori_io_stats, 1, fill_nothing, call_io_stats),
    SUBJECT(mori_io_inbound, 1, fill_nothing, call_io_inbound),
};
enum { SUBJECT_COUNT = sizeof subjects / sizeof subjects[0] };

static int failures;

static void check(int good, const char* name, const char* what, const mori_error* error) {
  printf("%s - %s: %s\n", good ? "ok" : "not ok", name, what);
  if (!good) {
    printf("  status %d, message: %s\n", error->status, error->message);
    ++failures;
  }
}

/* One call with struct_size `size_bytes`; the tail holds `tail` at its end. */
typedef struct trial {
  const char* what;
  uint64_t size_bytes;
  unsigned char tail;
  mori_status expected;
} trial;

static void run_trial(const subject* about, const trial* with) {
  /* uint64_t: aligned as the struct is. */
  static uint64_t storage[(MAX_STRUCT_BYTES + TAIL_BYTES) / sizeof(uint64_t)];
  unsigned char* bytes = (unsigned char*)storage;
  mori_error error = MORI_ERROR_INIT;
  mori_status status;
  memset(storage, 0, sizeof storage);
  about->fill(storage);
  storage[0] = with->size_bytes;
  bytes[about->size_bytes + TAIL_BYTES - 1] = with->tail;
  status = about->call(storage, &error);
  check(status == with->expected, about->name, with->what, &error);
  check(storage[0] == with->size_bytes && bytes[about->size_bytes + TAIL_BYTES - 1] == with->tail,
        about->name, "struct_size and tail are left alone", &error);
  if (status != MORI_OK) {
    const char* named = status == MORI_E_VERSION ? about->name : "struct_size";
    check(error.status == status && strstr(error.message, named) != NULL, about->name,
          "the message names the struct or struct_size", &error);
  }
}

static void check_subject(const subject* about) {
  const uint64_t size = about->size_bytes;
  const trial trials[] = {
      {"exact", size, 0, MORI_OK},
      {"longer, zero tail", size + TAIL_BYTES, 0, MORI_OK},
      {"longer, dirty tail", size + TAIL_BYTES, FILLER,
       about->is_report ? MORI_OK : MORI_E_VERSION},
      {"dirt just past struct_size is not looked at", size, FILLER, MORI_OK},
      {"zero", 0, 0, MORI_E_INVALID},
      {"the first release's", about->first_bytes, 0, MORI_OK},
      {"shorter than the first release by one", about->first_bytes - 1, 0, MORI_E_INVALID},
      {"absurd", UINT64_MAX, 0, MORI_E_INVALID},
  };
  mori_error error = MORI_ERROR_INIT;
  for (size_t i = 0; i < sizeof trials / sizeof trials[0]; ++i) run_trial(about, &trials[i]);
  check(about->call(NULL, &error) == MORI_E_INVALID, about->name, "NULL", &error);
}

/* The error record: 0 means its first size, the library stays within. */
static void check_error_record(void) {
  static const char name[] = "mori_error";
  union {
    mori_error record;
    unsigned char bytes[sizeof(mori_error) + TAIL_BYTES];
  } given;
  const uint64_t sizes[] = {0, sizeof(mori_error), sizeof(mori_error) + TAIL_BYTES};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    memset(&given, FILLER, sizeof given);
    given.record.struct_size = sizes[i];
    check(mori_shmem_put(shmem, words, token, 8, 7, &given.record) == MORI_E_INVALID &&
              given.record.status == MORI_E_INVALID,
          name, "filled on failure", &given.record);
    check(memchr(given.record.message, 0, sizeof given.record.message) != NULL &&
              given.record.struct_size == sizes[i],
          name, "terminated, struct_size left alone", &given.record);
    check(given.bytes[sizeof(mori_error)] == FILLER, name, "nothing written beyond", &given.record);
  }
  memset(&given, FILLER, sizeof given);
  given.record.struct_size = 8;
  check(mori_shmem_put(shmem, words, token, 8, 7, &given.record) == MORI_E_INVALID &&
            given.bytes[8] == FILLER,
        name, "too short to hold a status: left alone", &given.record);
  check(mori_shmem_put(shmem, words, token, 8, 7, NULL) == MORI_E_INVALID, name, "NULL",
        &given.record);
}

/* Each struct of the headers is a subject above or the error record. */
static void check_coverage(void) {
  const mori_error none = MORI_ERROR_INIT;
  for (size_t i = 0; i < sizeof sized_structs / sizeof sized_structs[0]; ++i) {
    int known = strcmp(sized_structs[i], "mori_error") == 0;
    for (int s = 0; s < SUBJECT_COUNT; ++s)
      known |= strcmp(sized_structs[i], subjects[s].name) == 0;
    check(known, sized_structs[i], "is covered", &none);
  }
}

/* An engine with a session to itself, and a transfer that is done. */
static int set_up_io(mori_error* error) {
  mori_io_options options = {.struct_size = sizeof options};
  mori_io_request request = {.struct_size = sizeof request};
  fill_io_options(&options);
  options.in_key = "io";
  fill_io_request(&request);
  return mori_io_create(&options, &io, error) == MORI_OK &&
         mori_io_backend_create(io, MORI_IO_BACKEND_TCP, NULL, error) == MORI_OK &&
         mori_io_desc(io, io_desc, &io_desc_bytes, error) == MORI_OK &&
         mori_io_remote_register(io, io_desc, io_desc_bytes, error) == MORI_OK &&
         mori_io_memory_register(io, io_memory, sizeof io_memory, MORI_IO_LOCATION_CPU, -1, 0,
                                 &io_region, error) == MORI_OK &&
         mori_io_memory_desc(io, io_region, io_memory_desc, &io_memory_desc_bytes, error) ==
             MORI_OK &&
         mori_io_session_create(io, io_region, io_memory_desc, io_memory_desc_bytes, NULL, &session,
                                error) == MORI_OK &&
         mori_io_submit(session, &request, &transfer, error) == MORI_OK &&
         mori_io_transfer_wait((const mori_io_transfer* const*)&transfer, 1, 10000000000, error) ==
             MORI_OK;
}

int main(void) {
  mori_shmem_unique_id id;
  mori_shmem_options options = {.struct_size = sizeof options};
  mori_ep_config config = {.struct_size = sizeof config};
  mori_error error = MORI_ERROR_INIT;
  fill_options(&options);
  fill_config(&config);
  if (mori_shmem_unique_id_create(&id, &error) != MORI_OK ||
      mori_shmem_create(&id, &options, &shmem, &error) != MORI_OK ||
      mori_shmem_malloc(shmem, 64, (void**)&words, &error) != MORI_OK ||
      mori_ep_create(shmem, &config, &ep, &error) != MORI_OK || !set_up_io(&error)) {
    printf("not ok - set-up: %s\n", error.message);
    return 1;
  }
  check_coverage();
  for (int s = 0; s < SUBJECT_COUNT; ++s) check_subject(&subjects[s]);
  check_error_record();
  mori_io_transfer_release(transfer);
  mori_io_session_destroy(session);
  mori_io_destroy(io);
  mori_ep_destroy(ep);
  mori_shmem_destroy(shmem);
  return failures == 0 ? 0 : 1;
}
