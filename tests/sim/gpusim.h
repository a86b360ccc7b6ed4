/* What the two simulated libraries, and all processes that load them, share: one folder.
 *
 *   $LLMSNAP_GPU_SIM/gpus            a line a GPU: UUID, MiB, PCI bus id, name
 *                    knobs           lines "key value"; see tests/sim/world.py for the keys
 *                    faults/OP       a line for each of the next calls of OP: a result code, `hang` or `crash`
 *                    records/PID     a struct sim_record for each process that ever had a context
 *                    calls           log of "OP PID RESULT" for every checkpoint call that ended
 */
#ifndef GPUSIM_H
#define GPUSIM_H

#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_GPUS 8
#define SIM_MIB 1048576ull
#define SIM_NONE (-1)

enum { SIM_RUNNING, SIM_LOCKED, SIM_CHECKPOINTED, SIM_FAILED };

struct sim_gpu {
    char uuid[64], bus[32], name[64];
    uint64_t total;
};

/* Times are seconds of CLOCK_MONOTONIC. An operation writes down what it will lead to, and when:
 * so it completes although its caller dies meanwhile, as the driver's operations do. */
struct sim_record {
    int32_t pid, state, next_state;
    int32_t managed, poisoned, broken;
    int64_t started;      /* ticks since boot: guards against pids that are given out anew */
    double done_at;       /* when `state` becomes `next_state` */
    double busy_until;    /* when the work that the process gave its GPU is done */
    double lingers_until; /* until when NVML still counts memory that a checkpoint gave back */
    double died_at;       /* when somebody first saw it dead; 0 before */
    uint64_t bytes[SIM_GPUS];
};

double sim_now(void);
void sim_sleep(double seconds);
long sim_number(const char *key, long otherwise);
void sim_text(const char *key, const char *otherwise, char *text, int size);
int sim_gpus(struct sim_gpu *gpus);

/* One lock for the whole folder, held for moments; and one for each process, held while it is
 * operated on: that is why a state query blocks behind an operation. Both return a descriptor. */
int sim_enter(void);
int sim_enter_operation(int pid);
void sim_leave(int lock);

int sim_load(int pid, struct sim_record *record); /* 0: it has none, or a dead namesake had it */
void sim_store(const struct sim_record *record);
uint64_t sim_held(const struct sim_record *record, int gpu);
uint64_t sim_used(int gpu, int except_pid);
int sim_records(struct sim_record *records, int size); /* of the living */

enum { SIM_GONE, SIM_ZOMBIE, SIM_STOPPED, SIM_ALIVE };
int sim_process(int pid, int64_t *started);

/* The next planned fault of `op`: 0 none, SIM_HANG, SIM_CRASH, else a result code. */
enum { SIM_HANG = -1, SIM_CRASH = -2 };
int sim_fault(const char *op);
void sim_log(const char *op, int pid, int result);

#endif
