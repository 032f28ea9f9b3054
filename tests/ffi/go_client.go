// go_client.go - binds to the libraries from Go by dlopen, through cgo with the C headers. Two PEs,
// threads of this process, dispatch and combine, and two engines transfer, what dlopen_client.c
// describes. Structs live in C memory: what the libraries are given points to more of it.
//
// usage: go_client LIBMORI_SHMEM.so LIBMORI_EP.so LIBMORI_IO.so
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <mori/ep.h>
#include <mori/io.h>
#include <mori/shmem.h>
#include <stdlib.h>

static void *shmem_library, *ep_library, *io_library;

// A C function for each of the libraries' that Go calls: cgo calls no pointers. The types are those
// of the declarations.
#define FUNCTION(library, result, name, parameters, arguments)                 \
  static result call_##name parameters {                                       \
    return ((__typeof__(&name))dlsym(library##_library, #name)) arguments;     \
  }
#define STATUS mori_status
FUNCTION(shmem, uint32_t, mori_shmem_version, (void), ())
FUNCTION(ep, uint32_t, mori_ep_version, (void), ())
FUNCTION(io, uint32_t, mori_io_version, (void), ())
FUNCTION(shmem, const char *, mori_shmem_status_name, (mori_status s), (s))
FUNCTION(shmem, STATUS, mori_shmem_unique_id_create, (mori_shmem_unique_id *i, mori_error *e),
         (i, e))
FUNCTION(shmem, STATUS, mori_shmem_create,
         (const mori_shmem_unique_id *i, const mori_shmem_options *o, mori_shmem **s,
          mori_error *e), (i, o, s, e))
FUNCTION(shmem, STATUS, mori_shmem_barrier_all, (mori_shmem *s, mori_error *e), (s, e))
FUNCTION(shmem, void, mori_shmem_destroy, (mori_shmem *s), (s))
FUNCTION(ep, STATUS, mori_ep_create,
         (mori_shmem *s, const mori_ep_config *c, mori_ep **p, mori_error *e), (s, c, p, e))
FUNCTION(ep, STATUS, mori_ep_dispatch,
         (mori_ep *p, const mori_ep_dispatch_args *a, mori_ep_dispatch_result *r, mori_error *e),
         (p, a, r, e))
FUNCTION(ep, STATUS, mori_ep_combine,
         (mori_ep *p, const mori_ep_combine_args *a, mori_ep_combine_result *r, mori_error *e),
         (p, a, r, e))
FUNCTION(ep, void, mori_ep_destroy, (mori_ep *p), (p))
FUNCTION(io, STATUS, mori_io_create, (const mori_io_options *o, mori_io **i, mori_error *e),
         (o, i, e))
FUNCTION(io, STATUS, mori_io_backend_create, (mori_io *i, int32_t b, mori_error *e),
         (i, b, NULL, e))
FUNCTION(io, STATUS, mori_io_memory_register,
         (mori_io *i, void *m, uint64_t n, uint32_t *r, mori_error *e),
         (i, m, n, MORI_IO_LOCATION_CPU, -1, 0, r, e))
FUNCTION(io, STATUS, mori_io_desc, (mori_io *i, void *d, uint64_t *n, mori_error *e), (i, d, n, e))
FUNCTION(io, STATUS, mori_io_memory_desc,
         (mori_io *i, uint32_t r, void *d, uint64_t *n, mori_error *e), (i, r, d, n, e))
FUNCTION(io, STATUS, mori_io_remote_register,
         (mori_io *i, const void *d, uint64_t n, mori_error *e), (i, d, n, e))
FUNCTION(io, STATUS, mori_io_session_create,
         (mori_io *i, uint32_t r, const void *d, uint64_t n, mori_io_session **s, mori_error *e),
         (i, r, d, n, NULL, s, e))
FUNCTION(io, STATUS, mori_io_submit,
         (mori_io_session *s, const mori_io_request *r, mori_io_transfer **t, mori_error *e),
         (s, r, t, e))
FUNCTION(io, STATUS, mori_io_transfer_wait,
         (mori_io_transfer **t, uint64_t n, uint64_t ns, mori_error *e),
         ((const mori_io_transfer *const *)t, n, ns, e))
FUNCTION(io, void, mori_io_transfer_release, (mori_io_transfer *t), (t))
FUNCTION(io, STATUS, mori_io_inbound_pop,
         (mori_io *i, const char *p, uint64_t u, mori_io_inbound *o, mori_error *e),
         (i, p, u, o, e))
FUNCTION(io, void, mori_io_session_destroy, (mori_io_session *s), (s))
FUNCTION(io, void, mori_io_destroy, (mori_io *i), (i))

static const char *load(const char *shmem, const char *ep, const char *io) {
  // shmem first: ep needs it, and finds it loaded.
  shmem_library = dlopen(shmem, RTLD_NOW | RTLD_GLOBAL);
  ep_library = shmem_library == NULL ? NULL : dlopen(ep, RTLD_NOW);
  io_library = ep_library == NULL ? NULL : dlopen(io, RTLD_NOW);
  return io_library == NULL ? dlerror() : NULL;
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"
)

const (
	pes, tokens, hidden = 2, 2, 4
	size, uid           = 4096, 9
)

// made is zeroed C memory for `count` values of a type; the program is too short to free it.
func made[T any](count int) *T {
	var one T
	return (*T)(C.calloc(C.size_t(count), C.size_t(unsafe.Sizeof(one))))
}

// sized is a struct of the C headers: its first field is its size.
func sized[T any]() *T {
	one := made[T](1)
	*(*uint64)(unsafe.Pointer(one)) = uint64(unsafe.Sizeof(*one))
	return one
}

func slice[T any](memory *T, count int) []T { return unsafe.Slice(memory, count) }

func newError() *C.mori_error { return sized[C.mori_error]() }

// check is nil, or the name of the status and the text that came with it.
func check(status C.mori_status, problem *C.mori_error) error {
	if status == C.MORI_OK {
		return nil
	}
	name := C.GoString(C.call_mori_shmem_status_name(status))
	return fmt.Errorf("%s: %s", name, C.GoString(&problem.message[0]))
}

func exchange(pe int, ep *C.mori_ep) error {
	problem := newError()
	input, indices := made[C.float](tokens*hidden), made[C.int32_t](tokens)
	for i := range slice(input, tokens*hidden) {
		slice(input, tokens*hidden)[i] = C.float(10*pe + i/hidden)
	}
	for token := range slice(indices, tokens) {
		slice(indices, tokens)[token] = C.int32_t((pe + token) % pes)
	}
	send, received := sized[C.mori_ep_dispatch_args](), sized[C.mori_ep_dispatch_result]()
	send.input, send.indices = unsafe.Pointer(input), indices
	send.token_count, send.dtype = tokens, C.MORI_EP_F32
	if err := check(C.call_mori_ep_dispatch(ep, send, received, problem), problem); err != nil {
		return err
	}
	rows := int(received.recv_token_count)
	outputs := made[C.float](pes * tokens * hidden)
	for i, value := range slice((*C.float)(received.out), rows*hidden) {
		slice(outputs, rows*hidden)[i] = value * C.float(pe+2)
	}
	back, combined := sized[C.mori_ep_combine_args](), sized[C.mori_ep_combine_result]()
	back.input, back.indices = unsafe.Pointer(outputs), indices
	back.token_count, back.dtype = tokens, C.MORI_EP_F32
	back.input_row_count = C.uint64_t(rows)
	if err := check(C.call_mori_ep_combine(ep, back, combined, problem), problem); err != nil {
		return err
	}
	for i, got := range slice((*C.float)(combined.out), tokens*hidden) {
		factor := C.float(slice(indices, tokens)[i/hidden] + 2)
		if got != slice(input, tokens*hidden)[i]*factor {
			return fmt.Errorf("value %d is %v", i, got)
		}
	}
	return nil
}

func runPe(pe int, id *C.mori_shmem_unique_id) error {
	problem := newError()
	options, config := sized[C.mori_shmem_options](), sized[C.mori_ep_config]()
	options.pe, options.pe_count, options.heap_bytes = C.int32_t(pe), pes, 1<<20
	config.hidden_dim, config.max_input_token_count = hidden, tokens
	config.expert_per_rank_count, config.expert_per_token_count = 1, 1
	shmem, ep := made[*C.mori_shmem](1), made[*C.mori_ep](1)
	defer func() {
		C.call_mori_ep_destroy(*ep)
		C.call_mori_shmem_destroy(*shmem)
	}()
	if err := check(C.call_mori_shmem_create(id, options, shmem, problem), problem); err != nil {
		return err
	}
	if err := check(C.call_mori_ep_create(*shmem, config, ep, problem), problem); err != nil {
		return err
	}
	if err := exchange(pe, *ep); err != nil {
		return err
	}
	return check(C.call_mori_shmem_barrier_all(*shmem, problem), problem)
}

// side is an engine, its memory, and the bytes by which the other side knows both.
type side struct {
	io                     *C.mori_io
	region                 C.uint32_t
	buffer                 []byte
	engine, memory         unsafe.Pointer
	engineRoom, memoryRoom *C.uint64_t
}

func openSide(key string) (*side, error) {
	problem, slot, region := newError(), made[*C.mori_io](1), made[C.uint32_t](1)
	options := sized[C.mori_io_options]()
	options.in_key, options.in_host = C.CString(key), C.CString("127.0.0.1")
	if err := check(C.call_mori_io_create(options, slot, problem), problem); err != nil {
		return nil, err
	}
	buffer := unsafe.Pointer(made[byte](size))
	self := &side{io: *slot, buffer: slice((*byte)(buffer), size)}
	self.engine, self.memory = unsafe.Pointer(made[byte](size)), unsafe.Pointer(made[byte](size))
	self.engineRoom, self.memoryRoom = made[C.uint64_t](1), made[C.uint64_t](1)
	*self.engineRoom, *self.memoryRoom = size, size
	status := C.call_mori_io_backend_create(self.io, C.MORI_IO_BACKEND_TCP, problem)
	if status == C.MORI_OK {
		status = C.call_mori_io_memory_register(self.io, buffer, size, region, problem)
	}
	self.region = *region
	if status == C.MORI_OK {
		status = C.call_mori_io_desc(self.io, self.engine, self.engineRoom, problem)
	}
	if status == C.MORI_OK {
		status = C.call_mori_io_memory_desc(self.io, self.region, self.memory, self.memoryRoom,
			problem)
	}
	return self, check(status, problem)
}

func writeHalves(session *C.mori_io_session) error {
	problem, transfer := newError(), made[*C.mori_io_transfer](1)
	from, to, sizes := made[C.uint64_t](2), made[C.uint64_t](2), made[C.uint64_t](2)
	slice(from, 2)[1], slice(to, 2)[0] = size/2, size/2
	slice(sizes, 2)[0], slice(sizes, 2)[1] = size/2, size/2
	request := sized[C.mori_io_request]()
	request.operation, request.piece_count, request.uid = C.MORI_IO_WRITE, 2, uid
	request.in_local_offsets, request.in_remote_offsets = from, to
	request.in_sizes_bytes = sizes
	if err := check(C.call_mori_io_submit(session, request, transfer, problem), problem); err != nil {
		return err
	}
	defer C.call_mori_io_transfer_release(*transfer)
	return check(C.call_mori_io_transfer_wait(transfer, 1, 30_000_000_000, problem), problem)
}

// hear returns the bytes announced to the target; it looks for them, ten seconds at most.
func hear(target *side) (int, error) {
	problem, told, peer := newError(), sized[C.mori_io_inbound](), C.CString("left")
	status := C.mori_status(C.MORI_E_AGAIN)
	for poll := 0; status == C.MORI_E_AGAIN && poll < 10000; poll++ {
		if poll > 0 {
			time.Sleep(time.Millisecond)
		}
		status = C.call_mori_io_inbound_pop(target.io, peer, uid, told, problem)
	}
	return int(told.size_bytes), check(status, problem)
}

func transfers() error {
	problem, session := newError(), made[*C.mori_io_session](1)
	left, err := openSide("left")
	if err != nil {
		return err
	}
	defer C.call_mori_io_destroy(left.io)
	right, err := openSide("right")
	if err != nil {
		return err
	}
	defer C.call_mori_io_destroy(right.io)
	for i := range left.buffer {
		left.buffer[i] = byte(7*i + 1)
	}
	status := C.call_mori_io_remote_register(left.io, right.engine, *right.engineRoom, problem)
	if status == C.MORI_OK {
		status = C.call_mori_io_session_create(left.io, left.region, right.memory,
			*right.memoryRoom, session, problem)
	}
	if err := check(status, problem); err != nil {
		return err
	}
	defer C.call_mori_io_session_destroy(*session)
	if err := writeHalves(*session); err != nil {
		return err
	}
	announced, err := hear(right)
	if err != nil {
		return err
	}
	swapped := append(append([]byte{}, left.buffer[size/2:]...), left.buffer[:size/2]...)
	if announced != size || !bytes.Equal(right.buffer, swapped) {
		return fmt.Errorf("wrong bytes, %d announced", announced)
	}
	return nil
}

// laterStruct is what a program of a later release has, which sets a field unknown here.
func laterStruct() error {
	type later struct {
		today    C.mori_io_options
		tomorrow uint64
	}
	options, problem := sized[later](), newError()
	options.tomorrow = 1
	return check(C.call_mori_io_create(&options.today, made[*C.mori_io](1), problem), problem)
}

func zeroPes(id *C.mori_shmem_unique_id) error {
	options, problem := sized[C.mori_shmem_options](), newError()
	status := C.call_mori_shmem_create(id, options, made[*C.mori_shmem](1), problem)
	return check(status, problem)
}

func refused(err error, parts ...string) bool {
	fmt.Println(err)
	good := err != nil
	for _, part := range parts {
		good = good && strings.Contains(err.Error(), part)
	}
	return good
}

func outcome(title string, err error) bool {
	text := "all right"
	if err != nil {
		text = err.Error()
	}
	fmt.Printf("%s: %s\n", title, text)
	return err == nil
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go_client SHMEM.so EP.so IO.so")
		os.Exit(2)
	}
	failed := C.load(C.CString(os.Args[1]), C.CString(os.Args[2]), C.CString(os.Args[3]))
	if failed != nil {
		fmt.Fprintln(os.Stderr, C.GoString(failed))
		os.Exit(1)
	}
	fmt.Printf("mori-shmem %#x, mori-ep %#x, mori-io %#x\n", uint32(C.call_mori_shmem_version()),
		uint32(C.call_mori_ep_version()), uint32(C.call_mori_io_version()))
	id, problem := made[C.mori_shmem_unique_id](1), newError()
	good := refused(zeroPes(id), "MORI_E_INVALID")
	good = refused(laterStruct(), "MORI_E_VERSION", " 80 bytes") && good
	good = outcome("io", transfers()) && good
	if err := check(C.call_mori_shmem_unique_id_create(id, problem), problem); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	outcomes := make(chan error, pes)
	for pe := 0; pe < pes; pe++ {
		go func(pe int) { outcomes <- runPe(pe, id) }(pe)
	}
	for pe := 0; pe < pes; pe++ {
		good = outcome("a PE", <-outcomes) && good
	}
	if !good {
		fmt.Println("not ok - Go")
		os.Exit(1)
	}
	fmt.Println("ok - Go")
}
