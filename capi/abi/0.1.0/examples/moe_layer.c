/* moe_layer.c - one mixture-of-experts layer over the C ABI: tokens go to the
 * experts that a router chose, each expert computes, the results come back and
 * are summed. It is the example to read before binding to mori/ep.h, and a
 * test: every value that returns is compared with the layer computed in place.
 *
 * PEs are threads of this process here; with processes only the way in which
 * the unique id travels would differ. Values are small integers, so float sums
 * are exact and the comparison is too.
 *
 * usage: moe_layer [PE_COUNT [TOKEN_COUNT]]
 */
#include <mori/ep.h>
#include <mori/shmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 64, EXPERTS_PER_PE = 4, TOP_K = 3, MAX_PES = 64 };

typedef struct worker {
  mori_shmem_unique_id id;
  int32_t pe;
  int32_t pe_count;
  uint64_t token_count;
  uint64_t max_token_count; /* of any PE: all make the same operator */
  const char* failed_call;
  mori_error error;
  uint64_t received_count;
  uint64_t wrong_count;
} worker;

/* The router: token `token` of `pe` uses three experts, spread over the PEs;
 * the last slot of every fourth token is not routed. */
static int32_t route(const worker* self, uint64_t token, int slot) {
  uint64_t expert_count = (uint64_t)self->pe_count * EXPERTS_PER_PE;
  uint64_t chosen = (uint64_t)self->pe * 5 + token * 7 + (uint64_t)slot * (1 + token % 3);
  if (slot == TOP_K - 1 && token % 4 == 0) return -1;
  return (int32_t)(chosen % expert_count);
}

static float gate(int slot) { return (float)(slot + 1); }

static float input_value(const worker* self, uint64_t token, uint64_t column) {
  return (float)((uint64_t)self->pe + token % 11 + column % 13);
}

/* Expert e multiplies by e + 1. */
static float expert(int32_t id, float value) { return (float)(id + 1) * value; }

/* Keeps the name of the first call that failed; the rest is then skipped. */
static int ok(worker* self, const char* call, mori_status status) {
  if (status == MORI_OK) return 1;
  if (self->failed_call == NULL) self->failed_call = call;
  return 0;
}

/* This PE's share of the layer: each received row goes through those of its
 * experts that live here, weighted by their gates. */
static void run_experts(const worker* self, const mori_ep_dispatch_result* received, float* out) {
  const float* rows = received->out;
  for (uint64_t row = 0; row < received->recv_token_count; ++row) {
    for (uint64_t column = 0; column < HIDDEN; ++column) {
      float sum = 0;
      for (int slot = 0; slot < TOP_K; ++slot) {
        int32_t id = received->indices[row * TOP_K + (uint64_t)slot];
        if (id < 0 || id / EXPERTS_PER_PE != self->pe) continue;
        sum += received->weights[row * TOP_K + (uint64_t)slot] *
               expert(id, rows[row * HIDDEN + column]);
      }
      out[row * HIDDEN + column] = sum;
    }
  }
}

/* The same layer without any communication, and without the library. */
static uint64_t count_wrong(const worker* self, const float* combined) {
  uint64_t wrong = 0;
  for (uint64_t token = 0; token < self->token_count; ++token) {
    for (uint64_t column = 0; column < HIDDEN; ++column) {
      float expected = 0;
      for (int slot = 0; slot < TOP_K; ++slot) {
        int32_t id = route(self, token, slot);
        if (id >= 0) expected += gate(slot) * expert(id, input_value(self, token, column));
      }
      wrong += combined[token * HIDDEN + column] != expected;
    }
  }
  return wrong;
}

static void dispatch_and_combine(worker* self, mori_ep* ep, const float* input,
                                 const float* weights, const int32_t* indices) {
  mori_ep_dispatch_args send = {.struct_size = sizeof send};
  mori_ep_dispatch_result received = {.struct_size = sizeof received};
  send.input = input;
  send.weights = weights;
  send.indices = indices;
  send.token_count = self->token_count;
  send.dtype = MORI_EP_F32;
  if (!ok(self, "mori_ep_dispatch", mori_ep_dispatch(ep, &send, &received, &self->error))) return;
  self->received_count = received.recv_token_count;

  float* outputs = calloc(received.capacity_count * HIDDEN, sizeof(float));
  mori_ep_combine_args back = {.struct_size = sizeof back};
  mori_ep_combine_result combined = {.struct_size = sizeof combined};
  if (outputs == NULL) {
    self->failed_call = "calloc";
    return;
  }
  run_experts(self, &received, outputs);
  back.input = outputs;
  back.indices = indices;
  back.token_count = self->token_count;
  back.input_row_count = received.recv_token_count;
  back.dtype = MORI_EP_F32;
  if (ok(self, "mori_ep_combine", mori_ep_combine(ep, &back, &combined, &self->error)))
    self->wrong_count = count_wrong(self, combined.out);
  free(outputs);
}

static void run_layer(worker* self, mori_shmem* shmem) {
  const uint64_t count = self->max_token_count;
  float* input = calloc(count * HIDDEN, sizeof(float));
  float* weights = calloc(count * TOP_K, sizeof(float));
  int32_t* indices = calloc(count * TOP_K, sizeof(int32_t));
  mori_ep_config config = {.struct_size = sizeof config};
  mori_ep* ep = NULL;
  config.hidden_dim = HIDDEN;
  config.max_input_token_count = count;
  config.expert_per_rank_count = EXPERTS_PER_PE;
  config.expert_per_token_count = TOP_K;
  if (input == NULL || weights == NULL || indices == NULL) self->failed_call = "calloc";
  for (uint64_t token = 0; self->failed_call == NULL && token < self->token_count; ++token) {
    for (uint64_t column = 0; column < HIDDEN; ++column)
      input[token * HIDDEN + column] = input_value(self, token, column);
    for (int slot = 0; slot < TOP_K; ++slot) {
      weights[token * TOP_K + (uint64_t)slot] = gate(slot);
      indices[token * TOP_K + (uint64_t)slot] = route(self, token, slot);
    }
  }
  if (self->failed_call == NULL &&
      ok(self, "mori_ep_create", mori_ep_create(shmem, &config, &ep, &self->error)))
    dispatch_and_combine(self, ep, input, weights, indices);
  /* Nobody leaves while others still read this PE's outputs. */
  if (self->failed_call == NULL)
    ok(self, "mori_shmem_barrier_all", mori_shmem_barrier_all(shmem, &self->error));
  mori_ep_destroy(ep);
  free(input);
  free(weights);
  free(indices);
}

static void* run_pe(void* argument) {
  worker* self = argument;
  mori_shmem* shmem = NULL;
  mori_shmem_options options = {.struct_size = sizeof options};
  options.pe = self->pe;
  options.pe_count = self->pe_count;
  options.heap_bytes = 64u << 20;
  if (ok(self, "mori_shmem_create", mori_shmem_create(&self->id, &options, &shmem, &self->error))) {
    run_layer(self, shmem);
    mori_shmem_destroy(shmem);
  }
  return NULL;
}

static int report(const worker* workers, int32_t pe_count) {
  int failures = 0;
  for (const worker* self = workers; self < workers + pe_count; ++self) {
    if (self->failed_call != NULL)
      printf("PE %d: %s: %s: %s\n", self->pe, self->failed_call,
             mori_shmem_status_name(self->error.status), self->error.message);
    else
      printf("PE %d: sent %llu tokens, received %llu, %llu wrong values\n", self->pe,
             (unsigned long long)self->token_count, (unsigned long long)self->received_count,
             (unsigned long long)self->wrong_count);
    failures += self->failed_call != NULL || self->wrong_count != 0;
  }
  return failures;
}

int main(int argc, char** argv) {
  static worker workers[MAX_PES];
  pthread_t threads[MAX_PES];
  long pe_count = argc > 1 ? strtol(argv[1], NULL, 10) : 4;
  long token_count = argc > 2 ? strtol(argv[2], NULL, 10) : 100;
  mori_error error = MORI_ERROR_INIT;
  mori_shmem_unique_id id;
  int32_t started = 0;
  if (pe_count < 1 || pe_count > MAX_PES || token_count < 0 || token_count > 100000) {
    fprintf(stderr, "usage: moe_layer [PE_COUNT [TOKEN_COUNT]], at most %d PEs\n", MAX_PES);
    return 2;
  }
  printf("mori-shmem %#x level %u, mori-ep %#x level %u\n", mori_shmem_version(),
         mori_shmem_abi_level(), mori_ep_version(), mori_ep_abi_level());
  if (mori_shmem_unique_id_create(&id, &error) != MORI_OK) {
    fprintf(stderr, "mori_shmem_unique_id_create: %s\n", error.message);
    return 1;
  }
  for (; started < pe_count; ++started) {
    worker* self = &workers[started];
    self->id = id;
    self->pe = started;
    self->pe_count = (int32_t)pe_count;
    self->max_token_count = token_count == 0 ? 1 : (uint64_t)token_count;
    /* The last PE has no token of its own: it still takes part. */
    self->token_count = pe_count > 1 && started == pe_count - 1 ? 0 : (uint64_t)token_count;
    self->error.struct_size = sizeof self->error;
    if (pthread_create(&threads[started], NULL, run_pe, self) != 0) break;
  }
  for (int32_t pe = 0; pe < started; ++pe) pthread_join(threads[pe], NULL);
  int failures = report(workers, started) + (started < pe_count);
  puts(failures == 0 ? "moe_layer: OK" : "moe_layer: FAILED");
  return failures == 0 ? 0 : 1;
}
