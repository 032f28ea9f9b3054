/* machine.c - the loop that runs one wave for a while. Instructions are looked up by
 * address in a table that machine.py fills as new ones are met. An access to memory
 * that is not mapped ends the loop with the address instead of the process.
 */
#include "wave.h"

#include <setjmp.h>
#include <signal.h>

typedef void instruction(u64, u64, u64, u64, u64, u64);

struct entry {
  instruction* run; /* null: not decoded yet                                              */
  u8 arguments[6];  /* which of the wave's arrays it takes, in its order                   */
  u8 stops;         /* STOP_*: whether the wave's turn ends after it                       */
};

enum stop { STOP_NO, STOP_BARRIER, STOP_YIELD };
enum outcome { TURN_OVER, AT_BARRIER, ENDED, UNKNOWN, YIELDED, BAD_ADDRESS };

static sigjmp_buf back;
static volatile sig_atomic_t is_running;
static volatile u64 bad_address;
static struct sigaction before[2];
static const int signals[2] = {SIGSEGV, SIGBUS};

static void on_fault(int number, siginfo_t* info, void* context) {
  (void)context;
  /* Not ours: with the handler of before, the access that is repeated now ends the process. */
  if (!is_running) sigaction(number, number == SIGSEGV ? &before[0] : &before[1], 0);
  if (!is_running) return;
  bad_address = (u64)info->si_addr;
  siglongjmp(back, 1);
}

/* To be called around calls of run(): accesses outside mapped memory are then reported by it. */
void catch_faults(int wanted) {
  const struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
  for (int i = 0; i < 2; ++i) {
    if (wanted)
      sigaction(signals[i], &ours, &before[i]);
    else
      sigaction(signals[i], &before[i], 0);
  }
}
u64 last_bad_address(void) { return bad_address; }

/* Runs the wave with these arrays until its turn of *left instructions ends, or before. */
int run(const struct entry* table, u64 code_begin, u64 entry_count, const u64* arrays, long* left) {
  const u32* S = (const u32*)arrays[0];
  volatile long remaining = *left;
  int outcome = TURN_OVER;
  if (sigsetjmp(back, 0) != 0) {
    is_running = 0;
    *left = remaining;
    return BAD_ADDRESS;
  }
  is_running = 1;
  while (remaining > 0) {
    const u64 at = pair(S, PC);
    const u64 index = (at - code_begin) / 4;
    if (at == ~(u64)0) {
      outcome = ENDED;
      break;
    }
    if (index >= entry_count || table[index].run == 0) {
      outcome = UNKNOWN;
      break;
    }
    const struct entry* e = &table[index];
    const u8* a = e->arguments;
    e->run(arrays[a[0]], arrays[a[1]], arrays[a[2]], arrays[a[3]], arrays[a[4]], arrays[a[5]]);
    remaining = remaining - 1;
    if (e->stops != STOP_NO) {
      outcome = e->stops == STOP_BARRIER ? AT_BARRIER : YIELDED;
      break;
    }
  }
  is_running = 0;
  *left = remaining;
  return outcome;
}
