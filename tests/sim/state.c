/* The shared folder, read and written under its locks. */
#define _GNU_SOURCE
#include "gpusim.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define PATH_SIZE 4096

static const char *path_of(char *path, const char *folder, const char *name) {
    const char *root = getenv("LLMSNAP_GPU_SIM");
    snprintf(path, PATH_SIZE, "%s/%s%s", root ? root : "/nonexistent", folder, name);
    return path;
}

static const char *path_of_pid(char *path, const char *folder, int pid) {
    char name[16];
    snprintf(name, sizeof name, "%d", pid);
    return path_of(path, folder, name);
}

double sim_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void sim_sleep(double seconds) {
    struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0)
        nanosleep(&span, NULL);
}

void sim_text(const char *key, const char *otherwise, char *text, int size) {
    char path[PATH_SIZE], line[512];
    size_t length = strlen(key);
    FILE *file = fopen(path_of(path, "", "knobs"), "re");
    snprintf(text, (size_t)size, "%s", otherwise);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(text, (size_t)size, "%s", line + length + 1);
        }
    if (file)
        fclose(file);
}

long sim_number(const char *key, long otherwise) {
    char text[64];
    sim_text(key, "", text, sizeof text);
    return *text ? strtol(text, NULL, 10) : otherwise;
}

int sim_gpus(struct sim_gpu *gpus) {
    char path[PATH_SIZE];
    unsigned long mib;
    int count = 0;
    FILE *file = fopen(path_of(path, "", "gpus"), "re");
    while (file && count < SIM_GPUS &&
           fscanf(file, "%63s %lu %31s %63[^\n]", gpus[count].uuid, &mib, gpus[count].bus, gpus[count].name) == 4)
        gpus[count++].total = mib * SIM_MIB;
    if (file)
        fclose(file);
    return count;
}

static int lock_file(const char *path) {
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock >= 0)
        flock(lock, LOCK_EX);
    return lock;
}

int sim_enter(void) {
    char path[PATH_SIZE];
    return lock_file(path_of(path, "", "lock"));
}

int sim_enter_operation(int pid) {
    char path[PATH_SIZE];
    return lock_file(path_of_pid(path, "operations/", pid));
}

void sim_leave(int lock) {
    if (lock >= 0)
        close(lock);
}

int sim_process(int pid, int64_t *started) {
    char path[64], text[1024], *fields;
    long long ticks = 0;
    char state = 0;
    ssize_t length;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return SIM_GONE;
    length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return SIM_GONE;
    text[length] = 0;
    fields = strrchr(text, ')'); /* the name may hold brackets and blanks */
    if (!fields ||
        sscanf(fields + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld",
               &state, &ticks) != 2)
        return SIM_GONE;
    if (started)
        *started = ticks;
    return state == 'Z' || state == 'X' ? SIM_ZOMBIE : state == 'T' || state == 't' ? SIM_STOPPED : SIM_ALIVE;
}

static int lives(const struct sim_record *record) {
    int64_t started;
    return sim_process(record->pid, &started) >= SIM_STOPPED && started == record->started;
}

static void settle(struct sim_record *record) {
    if (record->next_state == SIM_NONE || sim_now() < record->done_at)
        return;
    if (record->next_state == SIM_CHECKPOINTED)
        record->lingers_until = record->done_at + (double)sim_number("late_ms", 0) / 1e3;
    record->state = record->next_state;
    record->next_state = SIM_NONE;
}

static int read_record(int pid, struct sim_record *record) {
    char path[PATH_SIZE];
    int file = open(path_of_pid(path, "records/", pid), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, record, sizeof *record);
    close(file);
    if (length != sizeof *record)
        return 0;
    settle(record);
    return 1;
}

int sim_load(int pid, struct sim_record *record) {
    int64_t started;
    return read_record(pid, record) && sim_process(pid, &started) != SIM_GONE && started == record->started;
}

void sim_store(const struct sim_record *record) {
    char path[PATH_SIZE];
    int file = open(path_of_pid(path, "records/", record->pid), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || write(file, record, sizeof *record) != sizeof *record)
        abort();
    close(file);
}

uint64_t sim_held(const struct sim_record *record, int gpu) {
    if (record->state != SIM_CHECKPOINTED || record->next_state != SIM_NONE)
        return record->bytes[gpu];
    if (record->poisoned)
        return record->bytes[gpu] * (uint64_t)sim_number("leak_percent", 33) / 100;
    return sim_now() < record->lingers_until ? record->bytes[gpu] : 0;
}

static int all_records(struct sim_record *records, int size) {
    char path[PATH_SIZE];
    struct dirent *entry;
    int count = 0;
    DIR *folder = opendir(path_of(path, "records", ""));
    while (folder && count < size && (entry = readdir(folder)))
        if (atoi(entry->d_name) > 0)
            count += read_record(atoi(entry->d_name), &records[count]);
    if (folder)
        closedir(folder);
    return count;
}

uint64_t sim_used(int gpu, int except_pid) {
    struct sim_record records[256];
    int count = all_records(records, 256);
    uint64_t used = 0;
    for (struct sim_record *record = records; record < records + count; record++) {
        if (record->pid == except_pid)
            continue;
        if (!lives(record) && !record->died_at) {
            record->died_at = sim_now();
            sim_store(record);
        }
        if (!record->died_at || sim_now() < record->died_at + (double)sim_number("late_ms", 0) / 1e3)
            used += sim_held(record, gpu);
    }
    return used;
}

int sim_records(struct sim_record *records, int size) {
    int count = all_records(records, size), kept = 0;
    for (int i = 0; i < count; i++)
        if (lives(&records[i]))
            records[kept++] = records[i];
    return kept;
}

int sim_fault(const char *op) {
    char path[PATH_SIZE], text[1024] = "";
    int lock = sim_enter(), fault = 0;
    int file = open(path_of(path, "faults/", op), O_RDWR | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (length > 0) {
        char *rest = memchr(text, '\n', (size_t)length);
        rest = rest ? rest + 1 : text + length;
        fault = !strncmp(text, "hang", 4) ? SIM_HANG : !strncmp(text, "crash", 5) ? SIM_CRASH : atoi(text);
        if (ftruncate(file, 0) || pwrite(file, rest, (size_t)(text + length - rest), 0) < 0)
            abort();
    }
    if (file >= 0)
        close(file);
    sim_leave(lock);
    return fault;
}

void sim_log(const char *op, int pid, int result) {
    char path[PATH_SIZE], line[96];
    int length = snprintf(line, sizeof line, "%s %d %d\n", op, pid, result);
    int file = open(path_of(path, "", "calls"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
        return;
    if (write(file, line, (size_t)length) != length)
        abort();
    close(file);
}
