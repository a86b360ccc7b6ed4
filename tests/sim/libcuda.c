/* A libcuda.so.1 without a GPU: contexts and memory for servers, the checkpoint API for their
 * keeper. It does what real drivers were seen to do, the traps included; tests/sim/test_contract.py
 * has a test for each. */
#define _GNU_SOURCE
#include "gpusim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef struct { unsigned timeoutMs, reserved0; uint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { char bytes[16]; } CUuuid;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, OPERATING_SYSTEM = 304, ILLEGAL_STATE = 401, NOT_READY = 600, NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801, UNKNOWN = 999
};

#define POLL 0.002
#define SIM_BLOCKS 2048
#define GRANULE (2 * SIM_MIB)

static int initialised;

/* ---- the library itself ---- */

SIM_EXPORT CUresult cuInit(unsigned flags) {
    struct sim_gpu gpus[SIM_GPUS];
    int fault = (int)sim_number("cu_init", 0);
    (void)flags;
    sim_sleep((double)sim_number("init_ms", 0) / 1e3);
    if (fault)
        return fault;
    if (!sim_gpus(gpus))
        return NO_DEVICE;
    initialised = 1;
    return SUCCESS;
}

SIM_EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = (int)sim_number("cuda", 13000);
    return SUCCESS;
}

SIM_EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    static const struct { CUresult code; const char *name; } names[] = {
        {SUCCESS, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"}, {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"},
        {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"}, {NOT_READY, "CUDA_ERROR_NOT_READY"},
        {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"}, {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) {
            *name = names[i].name;
            return SUCCESS;
        }
    *name = NULL;
    return INVALID_VALUE;
}

/* ---- devices, as CUDA_VISIBLE_DEVICES lets this process see them ---- */

static int gpu_named(const char *word, const struct sim_gpu *gpus, int count) {
    char *end;
    long index = strtol(word, &end, 10);
    if (*word && !*end)
        return index >= 0 && index < count ? (int)index : SIM_NONE;
    for (int i = 0; i < count; i++)
        if (!strncmp(word, "GPU-", 4) && !strncmp(gpus[i].uuid, word, strlen(word)))
            return i;
    return SIM_NONE;
}

static int visible(int *indices) {
    struct sim_gpu gpus[SIM_GPUS];
    char list[1024], *rest = list, *word;
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    int all = sim_gpus(gpus), count = 0;
    if (!wanted) {
        for (int i = 0; i < all; i++)
            indices[i] = i;
        return all;
    }
    snprintf(list, sizeof list, "%s", wanted);
    while ((word = strsep(&rest, ",")) && count < SIM_GPUS) {
        indices[count] = gpu_named(word, gpus, all);
        if (indices[count] == SIM_NONE)
            break; /* an entry that isn't valid hides all that follow it */
        count++;
    }
    return count;
}

SIM_EXPORT CUresult cuDeviceGetCount(int *count) {
    int indices[SIM_GPUS];
    if (!initialised)
        return NOT_INITIALIZED;
    *count = visible(indices);
    return SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGet(int *device, int ordinal) {
    int indices[SIM_GPUS];
    if (!initialised)
        return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= visible(indices))
        return INVALID_DEVICE;
    *device = indices[ordinal];
    return SUCCESS;
}

/* ---- what servers call ---- */

static int current_gpu = SIM_NONE;
static struct { char *at; uint64_t size; int gpu; } blocks[SIM_BLOCKS];

/* Every call waits while the process is locked or checkpointed. */
static CUresult await_running(void) {
    struct sim_record record;
    if (!initialised)
        return NOT_INITIALIZED;
    if (current_gpu == SIM_NONE)
        return INVALID_CONTEXT;
    while (sim_load(getpid(), &record) && (record.state != SIM_RUNNING || record.next_state != SIM_NONE))
        sim_sleep(POLL);
    return record.broken ? UNKNOWN : SUCCESS;
}

/* Take `size` more bytes of a GPU for this process, or give them back when negative. */
static CUresult take(int gpu, int64_t size, int managed) {
    struct sim_gpu gpus[SIM_GPUS];
    struct sim_record record;
    int pid = getpid(), lock = sim_enter();
    CUresult result = SUCCESS;
    if (!sim_load(pid, &record)) {
        memset(&record, 0, sizeof record);
        record.pid = pid;
        record.next_state = SIM_NONE;
        sim_process(pid, &record.started);
    }
    uint64_t held = sim_used(gpu, 0) + (uint64_t)sim_number("reserved_mib", 400) * SIM_MIB;
    if (gpu >= sim_gpus(gpus))
        result = INVALID_DEVICE;
    else if (size > 0 && held + (uint64_t)size > gpus[gpu].total)
        result = OUT_OF_MEMORY;
    else {
        record.bytes[gpu] += (uint64_t)size;
        record.managed |= managed;
        sim_store(&record);
    }
    sim_leave(lock);
    return result;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!initialised)
        return NOT_INITIALIZED;
    *context = (void *)(intptr_t)(device + 1);
    return take(device, (int64_t)((uint64_t)sim_number("context_mib", 64) * SIM_MIB), 0);
}

SIM_EXPORT CUresult cuCtxSetCurrent(void *context) {
    current_gpu = (int)(intptr_t)context - 1;
    return SUCCESS;
}

static CUresult allocate(uint64_t *address, size_t wanted, int managed) {
    uint64_t size = (wanted + GRANULE - 1) / GRANULE * GRANULE;
    CUresult result = await_running();
    int slot = 0;
    if (result || (result = take(current_gpu, (int64_t)size, managed)))
        return result;
    while (slot < SIM_BLOCKS - 1 && blocks[slot].at)
        slot++;
    /* Untouched pages cost nothing: a test may fill a card of 24 GiB. */
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return UNKNOWN;
    blocks[slot].at = at;
    blocks[slot].size = size;
    blocks[slot].gpu = current_gpu;
    *address = (uint64_t)(uintptr_t)at;
    return SUCCESS;
}

SIM_EXPORT CUresult cuMemAlloc_v2(uint64_t *address, size_t size) { return allocate(address, size, 0); }

SIM_EXPORT CUresult cuMemAllocManaged(uint64_t *address, size_t size, unsigned flags) {
    (void)flags;
    return allocate(address, size, 1);
}

SIM_EXPORT CUresult cuMemFree_v2(uint64_t address) {
    CUresult result = await_running();
    for (int i = 0; !result && i < SIM_BLOCKS; i++)
        if (blocks[i].at && (uint64_t)(uintptr_t)blocks[i].at == address) {
            munmap(blocks[i].at, blocks[i].size);
            blocks[i].at = NULL;
            return take(blocks[i].gpu, -(int64_t)blocks[i].size, 0);
        }
    return result ? result : INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t size) {
    *address = malloc(size);
    return *address ? SUCCESS : OUT_OF_MEMORY;
}

SIM_EXPORT CUresult cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    CUresult result = await_running();
    if (!result)
        memcpy((void *)(uintptr_t)to, from, size);
    return result;
}

SIM_EXPORT CUresult cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    CUresult result = await_running();
    if (!result)
        memcpy(to, (void *)(uintptr_t)from, size);
    return result;
}

/* Work for the GPU: it takes its time and writes nothing. */
SIM_EXPORT CUresult cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream) {
    struct sim_record record;
    CUresult result = await_running();
    (void)to, (void)value, (void)stream;
    int lock = sim_enter();
    if (!result && sim_load(getpid(), &record)) {
        double start = record.busy_until > sim_now() ? record.busy_until : sim_now();
        record.busy_until = start + (double)size / ((double)sim_number("memset_mibps", 100000) * (double)SIM_MIB);
        sim_store(&record);
    }
    sim_leave(lock);
    return result;
}

/* The trap: as the first call after a checkpoint it crashes inside the library; of a process that
 * is only locked it returns without waiting. */
static CUresult synchronise(void) {
    struct sim_record record;
    if (!initialised)
        return NOT_INITIALIZED;
    while (sim_load(getpid(), &record)) {
        if (record.state == SIM_CHECKPOINTED) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        }
        if (record.state == SIM_LOCKED || sim_now() >= record.busy_until)
            return record.broken ? UNKNOWN : SUCCESS;
        sim_sleep(POLL);
    }
    return INVALID_CONTEXT;
}

SIM_EXPORT CUresult cuCtxSynchronize(void) { return synchronise(); }

SIM_EXPORT CUresult cuStreamSynchronize(void *stream) {
    (void)stream;
    return synchronise();
}

/* ---- the checkpoint API; drivers before 570 don't have it ---- */

#ifndef SIM_BEFORE_570

struct operation {
    int lock, crash;
    struct sim_record record;
};

static CUresult await_target(int pid) {
    char path[64];
    int process;
    while ((process = sim_process(pid, NULL)) == SIM_STOPPED)
        sim_sleep(POLL); /* for ever, if nobody continues it; no time limit counts here */
    if (process == SIM_GONE)
        return OPERATING_SYSTEM;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    if (access(path, R_OK | X_OK))
        return OPERATING_SYSTEM;
    return process == SIM_ZOMBIE ? NOT_INITIALIZED : SUCCESS;
}

static CUresult begin(const char *op, int pid, struct operation *operation) {
    int fault = sim_fault(op);
    operation->lock = sim_enter_operation(pid);
    operation->crash = fault == SIM_CRASH;
    while (fault == SIM_HANG)
        sim_sleep(1);
    if (fault > 0)
        return fault;
    CUresult result = await_target(pid);
    while (!result) {
        if (!sim_load(pid, &operation->record))
            return NOT_INITIALIZED;
        if (operation->record.next_state == SIM_NONE)
            return SUCCESS;
        sim_sleep(POLL); /* an operation whose caller has died goes on */
    }
    return result;
}

static CUresult end(const char *op, int pid, struct operation *operation, CUresult result) {
    if (operation->crash)
        raise(SIGSEGV);
    sim_log(op, pid, result);
    sim_leave(operation->lock);
    return result;
}

/* Let the process reach `state` after `seconds`, whatever becomes of this caller. */
static CUresult lead_to(struct operation *operation, int state, double seconds) {
    struct sim_record *record = &operation->record;
    int pid = record->pid, lock = sim_enter();
    sim_load(pid, record); /* its own process may have written meanwhile */
    record->next_state = state;
    record->done_at = sim_now() + seconds;
    sim_store(record);
    sim_leave(lock);
    if (operation->crash)
        raise(SIGSEGV);
    do {
        sim_sleep(POLL);
        if (sim_process(pid, NULL) <= SIM_ZOMBIE)
            return OPERATING_SYSTEM;
    } while (sim_now() < record->done_at);
    lock = sim_enter();
    if (sim_load(pid, record))
        sim_store(record);
    sim_leave(lock);
    return SUCCESS;
}

static double seconds_for(const struct sim_record *record, const char *rate, long mibps) {
    double bytes = 0;
    for (int gpu = 0; gpu < SIM_GPUS; gpu++)
        bytes += (double)record->bytes[gpu];
    return (double)sim_number("fixed_ms", 5) / 1e3 + bytes / ((double)sim_number(rate, mibps) * (double)SIM_MIB);
}

SIM_EXPORT CUresult cuCheckpointProcessGetState(int pid, int *state) {
    struct operation operation;
    CUresult result = begin("state", pid, &operation);
    if (!result)
        *state = operation.record.state;
    return end("state", pid, &operation, result);
}

SIM_EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    struct operation operation;
    CUresult result = begin("thread", pid, &operation);
    if (!result)
        *tid = pid;
    return end("thread", pid, &operation, result);
}

SIM_EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    struct operation operation;
    double limit = args && args->timeoutMs ? args->timeoutMs / 1e3 : 1e9, work = 0;
    CUresult result = begin("lock", pid, &operation);
    if (!result && operation.record.state != SIM_RUNNING)
        result = ILLEGAL_STATE;
    if (!result && (work = operation.record.busy_until - sim_now()) > limit) {
        sim_sleep(limit);
        result = NOT_READY;
    }
    if (!result)
        result = lead_to(&operation, SIM_LOCKED, (work > 0 ? work : 0) + (double)sim_number("lock_ms", 2) / 1e3);
    return end("lock", pid, &operation, result);
}

static CUresult refuse_checkpoint(struct sim_record *record) {
    if (record->state != SIM_LOCKED)
        return ILLEGAL_STATE;
    if (sim_number("mig", 0))
        return OUT_OF_MEMORY;
    if (!record->managed)
        return SUCCESS;
    record->broken = (int)sim_number("managed_breaks", 0); /* the context is dead on 595, well on 580 */
    sim_store(record);
    return NOT_SUPPORTED;
}

SIM_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, void *args) {
    struct operation operation;
    CUresult result = begin("checkpoint", pid, &operation);
    (void)args;
    if (!result)
        result = refuse_checkpoint(&operation.record);
    if (!result) {
        double seconds = seconds_for(&operation.record, "checkpoint_mibps", 4000);
        long room = sim_number("host_room_mib", 0);
        if (room && sim_held(&operation.record, 0) > (uint64_t)room * SIM_MIB) {
            sim_sleep(seconds / 2); /* its memory cgroup is too small for the copy */
            kill(pid, SIGKILL);
            while (sim_process(pid, NULL) > SIM_ZOMBIE) /* on a busy machine it takes its time to die */
                sim_sleep(POLL);
        }
        result = lead_to(&operation, SIM_CHECKPOINTED, seconds);
    }
    return end("checkpoint", pid, &operation, result);
}

static int fits(const struct sim_record *record) {
    struct sim_gpu gpus[SIM_GPUS];
    uint64_t reserved = (uint64_t)sim_number("reserved_mib", 400) * SIM_MIB;
    int count = sim_gpus(gpus);
    for (int gpu = 0; gpu < count; gpu++)
        if (record->bytes[gpu] + sim_used(gpu, record->pid) + reserved > gpus[gpu].total)
            return 0;
    return 1;
}

SIM_EXPORT CUresult cuCheckpointProcessRestore(int pid, void *args) {
    struct operation operation;
    CUresult result = begin("restore", pid, &operation);
    (void)args;
    if (!result && !initialised && !sim_number("persistence", 1))
        result = NOT_INITIALIZED;
    if (!result && operation.record.state != SIM_CHECKPOINTED)
        result = ILLEGAL_STATE;
    if (!result && operation.record.poisoned)
        result = OPERATING_SYSTEM;
    if (!result) {
        int lock = sim_enter();
        if (!fits(&operation.record)) {
            operation.record.poisoned = 1; /* for ever, and part of its memory stays taken */
            sim_store(&operation.record);
            result = OUT_OF_MEMORY;
        } else {
            operation.record.next_state = SIM_LOCKED; /* takes its memory at once */
            operation.record.done_at = sim_now() + 60;
            sim_store(&operation.record);
        }
        sim_leave(lock);
    }
    if (!result)
        result = lead_to(&operation, SIM_LOCKED, seconds_for(&operation.record, "restore_mibps", 7000));
    return end("restore", pid, &operation, result);
}

SIM_EXPORT CUresult cuCheckpointProcessUnlock(int pid, void *args) {
    struct operation operation;
    CUresult result = begin("unlock", pid, &operation);
    (void)args;
    if (!result && operation.record.state != SIM_LOCKED)
        result = ILLEGAL_STATE;
    if (!result)
        result = lead_to(&operation, SIM_RUNNING, (double)sim_number("unlock_ms", 2) / 1e3);
    return end("unlock", pid, &operation, result);
}

#endif
