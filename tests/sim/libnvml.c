/* A libnvidia-ml.so.1 without a GPU: what pynvml asks of it to say how full the cards are. */
#define _GNU_SOURCE
#include "gpusim.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25
};

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute_instance; } process_v3;

static struct sim_gpu gpus[SIM_GPUS];
static int gpu_count;
static long loads; /* which load of the driver we were initialised with */
static int lost;   /* GPUs that were seen lost, as bits: they are so until we are initialised anew */

/* Every call asks this first: drivers stall, get unloaded, and lose cards. */
static int fault_of(void *handle) {
    int gpu = (int)(intptr_t)handle - 1;
    while (sim_number("nvml_stall", 0))
        sim_sleep(0.005);
    if (!gpu_count)
        return UNINITIALIZED;
    if (loads != sim_number("driver_loads", 0))
        return DRIVER_NOT_LOADED;
    if (!handle)
        return SUCCESS;
    if (gpu < 0 || gpu >= gpu_count)
        return INVALID_ARGUMENT;
    if (sim_number("lost_gpu", -1) == gpu)
        lost |= 1 << gpu;
    return lost & 1 << gpu ? GPU_IS_LOST : SUCCESS;
}

#define ASK(handle) do { int fault = fault_of(handle); if (fault) return fault; } while (0)
#define GPU(handle) (gpus[(intptr_t)(handle) - 1])
#define INDEX(handle) ((int)(intptr_t)(handle) - 1)

SIM_EXPORT int nvmlInitWithFlags(unsigned flags) {
    int fault = (int)sim_number("nvml_init", 0);
    (void)flags;
    while (sim_number("nvml_stall", 0))
        sim_sleep(0.005);
    if (fault)
        return fault;
    gpu_count = sim_gpus(gpus);
    lost = 0;
    loads = sim_number("driver_loads", 0);
    return gpu_count ? SUCCESS : DRIVER_NOT_LOADED;
}

SIM_EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

SIM_EXPORT int nvmlShutdown(void) {
    gpu_count = 0;
    return SUCCESS;
}

SIM_EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

SIM_EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    ASK(NULL);
    sim_text("driver", "580.159.03", version, (int)size);
    return SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    ASK(NULL);
    *count = (unsigned)gpu_count;
    return SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(intptr_t)(index + 1);
    ASK(*handle);
    return SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size) {
    ASK(handle);
    snprintf(uuid, size, "%s", GPU(handle).uuid);
    return SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetName(void *handle, char *name, unsigned size) {
    ASK(handle);
    snprintf(name, size, "%s", GPU(handle).name);
    return SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
    long mig = sim_number("mig", 0);
    ASK(handle);
    if (mig < 0)
        return NOT_SUPPORTED; /* cards that can't be split */
    *now = *pending = (unsigned)mig;
    return SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory) {
    ASK(handle);
    if (sim_number("memory_unsupported", 0))
        return NOT_SUPPORTED; /* cards that share the machine's memory */
    int lock = sim_enter();
    unsigned long long used = sim_used(INDEX(handle), 0) + (uint64_t)sim_number("reserved_mib", 400) * SIM_MIB;
    sim_leave(lock);
    memory->total = GPU(handle).total;
    memory->used = used < memory->total ? used : memory->total;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

#ifndef SIM_BEFORE_570
SIM_EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory) {
    memory_v1 plain;
    if (memory->version != 0x02000028)
        return ARGUMENT_VERSION_MISMATCH;
    int fault = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (fault)
        return fault;
    memory->total = plain.total;
    memory->free = plain.free;
    memory->reserved = (uint64_t)sim_number("reserved_mib", 400) * SIM_MIB;
    memory->used = plain.used - memory->reserved;
    return SUCCESS;
}
#endif

/* Laptops and old cards tell none of these: a negative knob is "not supported". */
static int vital(void *handle, const char *key, long otherwise, unsigned *value) {
    long told = sim_number(key, otherwise);
    ASK(handle);
    *value = told < 0 ? 0 : (unsigned)told;
    return told < 0 ? NOT_SUPPORTED : SUCCESS;
}

typedef struct { unsigned gpu, memory; } utilisation;

SIM_EXPORT int nvmlDeviceGetUtilizationRates(void *handle, utilisation *rates) {
    rates->memory = 0;
    return vital(handle, "gpu_percent", 0, &rates->gpu);
}

SIM_EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    return vital(handle, "power_mw", 21500, milliwatts);
}

SIM_EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) {
    return vital(handle, "power_limit_mw", 450000, milliwatts);
}

SIM_EXPORT int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    (void)sensor;
    return vital(handle, "celsius", 41, celsius);
}

SIM_EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *generation) {
    return vital(handle, "pcie_generation", 1, generation);
}

SIM_EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *width) {
    return vital(handle, "pcie_width", 16, width);
}

SIM_EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *generation) {
    return vital(handle, "pcie_max_generation", 4, generation);
}

SIM_EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *width) {
    return vital(handle, "pcie_max_width", 16, width);
}

/* A checkpointed process isn't listed; a locked one is. Pids are the host's: in a container they
 * mean nothing, and `pid_offset` shifts them as a namespace would. */
SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_v3 *list) {
    struct sim_record records[256];
    char how[32];
    unsigned room = *count, found = 0;
    ASK(handle);
    sim_text("processes", "all", how, sizeof how);
    if (!strcmp(how, "unsupported") || !strcmp(how, "denied"))
        return *how == 'u' ? NOT_SUPPORTED : NO_PERMISSION;
    int lock = sim_enter(), living = sim_records(records, 256);
    for (int i = 0; i < living; i++) {
        uint64_t bytes = sim_held(&records[i], INDEX(handle));
        int checkpointed = records[i].state == SIM_CHECKPOINTED && records[i].next_state == SIM_NONE;
        if (!bytes || (checkpointed && !records[i].poisoned))
            continue;
        if (list && found < room) {
            list[found].pid = (unsigned)(records[i].pid + sim_number("pid_offset", 0));
            list[found].bytes = strcmp(how, "unknown") ? bytes : ~0ull;
            list[found].instance = list[found].compute_instance = ~0u;
        }
        found++;
    }
    sim_leave(lock);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
