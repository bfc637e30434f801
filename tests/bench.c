/*
 * How long one estimate takes: inside a process, of many into a report that
 * exists already, which is what a search over layouts pays, by the closed form
 * and with the allocator simulated; and as a process (bench PROGRAM), which is
 * what a script pays.
 */
#define _DEFAULT_SOURCE /* wait4 */
#define _POSIX_C_SOURCE 200809L

#include <memplan/memplan.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BENCH_RUNS = 101, BENCH_PROCESSES = 201 };
#define BENCH_ENOUGH_S 0.2

/* What must stay instant: the main job first. */
struct bench_row {
    const char *model, *setup; /* "key=value ..." */
};
static const struct bench_row rows[] = {
    { "llama-7b", "zero=3 gpus=64" },
    { "llama-7b", "zero=3 gpus=64 mfu=0.4" }, /* no time to predict */
    { "llama-7b", "zero=1 gpus=64" },
    { "llama-7b", "zero=2 gpus=64 grad_accum=4" },
    { "llama-7b", "zero=3 gpus=64 recompute=full grad_accum=4" },
    { "llama-7b", "framework=deepspeed zero=2 gpus=2048 "
                  "round_robin_gradients=true" },
    { "llama-7b", "framework=fsdp gpus=64" },
    { "llama-7b", "engine=fsdp2 gpus=64 recompute=full" },
    { "llama-3-70b", "framework=torchtitan gpus=64 tp=8" },
    { "gpt3-175b", "framework=megatron gpus=512 tp=8 pp=8 global_batch=512" },
    { "gpt3-175b",
      "framework=megatron gpus=512 tp=8 pp=8 vpp=3 global_batch=512" },
    { "llama-3.1-405b",
      "framework=megatron gpus=8192 tp=8 pp=16 cp=2 global_batch=2048 "
      "pipeline_layers=7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,7 recompute=full" },
    { "deepseek-v3",
      "framework=megatron gpus=2048 pp=16 ep=64 global_batch=15360 "
      "pipeline_layers=4,4,4,4,4,4,4,4,4,4,4,4,4,3,3,3 recompute=full" },
    { "deepseek-v3",
      "framework=megatron gpus=2048 pp=16 ep=64 global_batch=15360 "
      "pipeline_layers=4,4,4,4,4,4,4,4,4,4,4,4,4,3,3,3 recompute=full "
      "schedule=dualpipe gpu=h200" },
    { "deepseek-v3", "zero=3 gpus=2048 recompute=full gpu=h200" },
    { "llama-2-70b", "base_dtype=nf4 lora_rank=64 recompute=full" },
    { "llama-2-70b", "zero=2 gpus=8" }, /* does not fit: what to change */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of this process: what runs beside it on the machine is no part. */
static double used_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench {
    memplan_model *model;
    memplan_setup *setup;
    memplan_report *report;
};

/* Median and least of so many batches of estimates, in seconds. */
struct bench_times {
    double median, least;
};

static bool bench_time(struct bench_times *out, const struct bench *b,
                       unsigned batch)
{
    static double times[BENCH_RUNS];
    const double begin = used_s();
    unsigned n = 0;
    while (n < BENCH_RUNS && (n < 3 || used_s() - begin < BENCH_ENOUGH_S)) {
        const double start = used_s();
        for (unsigned j = 0; j < batch; j++)
            if (memplan_estimate_again(b->report, b->model, b->setup, NULL)
                != MEMPLAN_OK)
                return false;
        times[n++] = (used_s() - start) / batch;
    }
    qsort(times, n, sizeof(times[0]), compare_times);
    *out = (struct bench_times){ times[n / 2], times[0] };
    return true;
}

static bool set_pair(memplan_setup *setup, const char *pair, size_t n)
{
    char text[256];
    if (n >= sizeof text)
        return false;
    memcpy(text, pair, n);
    text[n] = '\0';
    char *value = strchr(text, '=');
    if (value == NULL)
        return false;
    *value++ = '\0';
    return memplan_setup_set(setup, text, value, NULL) == MEMPLAN_OK;
}

static bool set_all(memplan_setup *setup, const char *pairs)
{
    while (*pairs != '\0') {
        const size_t n = strcspn(pairs, " ");
        if (!set_pair(setup, pairs, n))
            return false;
        pairs += n + strspn(pairs + n, " ");
    }
    return true;
}

static bool bench_start(struct bench *b, const struct bench_row *row)
{
    *b = (struct bench){ NULL };
    return memplan_model_builtin(&b->model, row->model, NULL, NULL)
               == MEMPLAN_OK
           && memplan_setup_new(&b->setup, NULL, NULL) == MEMPLAN_OK
           && set_all(b->setup, row->setup)
           && memplan_setup_set(b->setup, "fast", "true", NULL) == MEMPLAN_OK
           && memplan_estimate(&b->report, b->model, b->setup, NULL, NULL)
                  == MEMPLAN_OK;
}

static bool bench_row(const struct bench_row *row)
{
    struct bench b;
    struct bench_times fast, full;
    const bool done =
        bench_start(&b, row) && bench_time(&fast, &b, 16)
        && memplan_setup_set(b.setup, "fast", "false", NULL) == MEMPLAN_OK
        && bench_time(&full, &b, 1);
    if (done)
        printf("%8.1f %8.1f %9.0f  %s %s\n", fast.least * 1e6,
               fast.median * 1e6, full.least * 1e6, row->model, row->setup);
    else
        fprintf(stderr, "bench: the estimate of %s %s failed\n", row->model,
                row->setup);
    memplan_report_free(b.report);
    memplan_setup_free(b.setup);
    memplan_model_free(b.model);
    return done;
}

/* Runs the main job once, its output thrown away; seconds, or -1. */
static double process_s(const char *program, long *resident_kib)
{
    const double start = now_s();
    const pid_t pid = fork();
    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY);
        if (null >= 0 && dup2(null, STDOUT_FILENO) >= 0)
            execl(program, program, "llama-7b.json", "--zero", "3", "--gpus",
                  "64", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status != 0)
        return -1;
    *resident_kib = usage.ru_maxrss;
    return now_s() - start;
}

static bool bench_process(const char *program)
{
    static double times[BENCH_PROCESSES];
    long most_kib = 0;
    for (int i = 0; i < BENCH_PROCESSES; i++) {
        long kib = 0;
        times[i] = process_s(program, &kib);
        if (times[i] < 0)
            return false;
        most_kib = kib > most_kib ? kib : most_kib;
    }
    qsort(times, BENCH_PROCESSES, sizeof(times[0]), compare_times);
    printf("the first as a process: %.2f ms, %.1f MiB resident\n",
           times[BENCH_PROCESSES / 2] * 1e3, (double)most_kib / 1024);
    return true;
}

int main(int argc, char **argv)
{
    printf("%8s %8s %9s  microseconds an estimate takes\n", "fast", "median",
           "allocator");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!bench_row(&rows[i]))
            return 1;
    if (argc > 1 && !bench_process(argv[1])) {
        fprintf(stderr, "bench: cannot run '%s'\n", argv[1]);
        return 1;
    }
    return 0;
}
