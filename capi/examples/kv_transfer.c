/* kv_transfer.c - what a prefill and a decode process do with libmori-io, in one
 * process for brevity: two engines tell each other who they are, the prefill side
 * writes blocks of its cache into the decode side's memory as one batch, and the
 * decode side is notified. Between processes the descriptors travel by whatever
 * the two have: a file, a socket, a store.
 *
 *   usage: kv_transfer [BLOCKS]      (1 .. 1024)
 */
#include <mori/io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024, MAX_BLOCKS = 1024, DESC_BYTES = 4096 };

typedef struct side {
  mori_io* io;
  unsigned char* cache;
  uint32_t region;
  unsigned char engine_desc[DESC_BYTES];
  unsigned char memory_desc[DESC_BYTES];
  uint64_t engine_desc_bytes;
  uint64_t memory_desc_bytes;
} side;

/* An engine with a cache that peers may read and write. */
static mori_status side_create(side* out, const char* key, uint64_t bytes, mori_error* error) {
  mori_io_options options = {.struct_size = sizeof options, .in_key = key};
  mori_status status = MORI_OK;
  memset(out, 0, sizeof *out);
  out->cache = calloc(1, bytes);
  out->engine_desc_bytes = out->memory_desc_bytes = DESC_BYTES;
  if (out->cache == NULL) return MORI_E_NO_MEMORY;
  status = mori_io_create(&options, &out->io, error);
  if (status == MORI_OK) status = mori_io_backend_create(out->io, MORI_IO_BACKEND_TCP, NULL, error);
  if (status == MORI_OK)
    status = mori_io_memory_register(out->io, out->cache, bytes, MORI_IO_LOCATION_CPU, -1, 0,
                                     &out->region, error);
  if (status == MORI_OK)
    status = mori_io_desc(out->io, out->engine_desc, &out->engine_desc_bytes, error);
  if (status == MORI_OK)
    status =
        mori_io_memory_desc(out->io, out->region, out->memory_desc, &out->memory_desc_bytes, error);
  return status;
}

static void side_destroy(side* take) {
  mori_io_destroy(take->io);
  free(take->cache);
}

/* Writes all blocks, in reverse order, and waits. */
static mori_status send_blocks(mori_io_session* session, uint64_t count, uint64_t uid,
                               mori_error* error) {
  static uint64_t from[MAX_BLOCKS], to[MAX_BLOCKS], sizes[MAX_BLOCKS];
  mori_io_request request = {.struct_size = sizeof request,
                             .operation = MORI_IO_WRITE,
                             .piece_count = count,
                             .in_local_offsets = from,
                             .in_remote_offsets = to,
                             .in_sizes_bytes = sizes,
                             .uid = uid,
                             .in_metadata = "layer 0",
                             .metadata_bytes = 7};
  mori_io_transfer* transfer = NULL;
  mori_status status = MORI_OK;
  for (uint64_t i = 0; i < count; ++i) {
    from[i] = i * BLOCK_BYTES;
    to[i] = (count - 1 - i) * BLOCK_BYTES;
    sizes[i] = BLOCK_BYTES;
  }
  status = mori_io_submit(session, &request, &transfer, error);
  if (status == MORI_OK) {
    const mori_io_transfer* const one = transfer;
    status = mori_io_transfer_wait(&one, 1, 10000000000u, error);
  }
  mori_io_transfer_release(transfer);
  return status;
}

static int verify(const side* prefill, const side* decode, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    if (memcmp(prefill->cache + i * BLOCK_BYTES, decode->cache + (count - 1 - i) * BLOCK_BYTES,
               BLOCK_BYTES) != 0)
      return 0;
  return 1;
}

int main(int count, char** arguments) {
  const uint64_t blocks = count > 1 ? strtoull(arguments[1], NULL, 10) : 16;
  const uint64_t bytes = blocks * BLOCK_BYTES;
  mori_error error = MORI_ERROR_INIT;
  mori_io_inbound inbound = {.struct_size = sizeof inbound};
  mori_io_session* session = NULL;
  side prefill, decode;
  int good = 0;
  if (blocks < 1 || blocks > MAX_BLOCKS) {
    fprintf(stderr, "usage: kv_transfer [BLOCKS]   (1 .. %d)\n", (int)MAX_BLOCKS);
    return 2;
  }
  if (side_create(&prefill, "prefill", bytes, &error) == MORI_OK &&
      side_create(&decode, "decode", bytes, &error) == MORI_OK &&
      mori_io_remote_register(prefill.io, decode.engine_desc, decode.engine_desc_bytes, &error) ==
          MORI_OK &&
      mori_io_session_create(prefill.io, prefill.region, decode.memory_desc,
                             decode.memory_desc_bytes, NULL, &session, &error) == MORI_OK) {
    for (uint64_t i = 0; i < bytes; ++i)
      prefill.cache[i] = (unsigned char)(i * 7 + i / BLOCK_BYTES);
    good = send_blocks(session, blocks, 42, &error) == MORI_OK &&
           mori_io_inbound_pop(decode.io, "prefill", 42, &inbound, &error) == MORI_OK &&
           verify(&prefill, &decode, blocks);
  }
  if (good)
    printf("%d blocks of %d bytes, notified with '%.7s'\nkv_transfer: OK\n", (int)blocks,
           (int)BLOCK_BYTES, (const char*)inbound.metadata);
  else
    fprintf(stderr, "%s: %s\n", mori_io_status_name(error.status), error.message);
  mori_io_session_destroy(session);
  side_destroy(&prefill);
  side_destroy(&decode);
  return good ? 0 : 1;
}
