/*
 * How long one estimate takes: inside a process, the median of many into a
 * report that exists already, which is what a search over layouts pays; and as
 * a process (bench PROGRAM), which is what a script pays.
 */
#define _DEFAULT_SOURCE /* wait4 */
#define _POSIX_C_SOURCE 200809L

#include <memplan/memplan.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BENCH_RUNS = 201, BENCH_BATCH = 16, BENCH_PROCESSES = 201 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static memplan_status bench_time(double *median_s, memplan_report *report,
                                 const memplan_model *model,
                                 const memplan_setup *setup)
{
    static double times[BENCH_RUNS];
    for (int i = 0; i < BENCH_RUNS; i++) {
        double start = now_s();
        for (int j = 0; j < BENCH_BATCH; j++) {
            memplan_status status =
                memplan_estimate_again(report, model, setup, NULL);
            if (status != MEMPLAN_OK)
                return status;
        }
        times[i] = (now_s() - start) / BENCH_BATCH;
    }
    qsort(times, BENCH_RUNS, sizeof(times[0]), compare_times);
    *median_s = times[BENCH_RUNS / 2];
    return MEMPLAN_OK;
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
    printf("the same as a process: %.2f ms, %.1f MiB resident\n",
           times[BENCH_PROCESSES / 2] * 1e3, (double)most_kib / 1024);
    return true;
}

int main(int argc, char **argv)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    double median_s = 0, full_s = 0;
    bool done =
        memplan_model_builtin(&model, "llama-7b", NULL, NULL) == MEMPLAN_OK
        && memplan_setup_new(&setup, NULL, NULL) == MEMPLAN_OK
        && memplan_setup_set(setup, "zero", "3", NULL) == MEMPLAN_OK
        && memplan_setup_set(setup, "gpus", "64", NULL) == MEMPLAN_OK
        && memplan_setup_set(setup, "fast", "true", NULL) == MEMPLAN_OK
        && memplan_estimate(&report, model, setup, NULL, NULL) == MEMPLAN_OK
        && bench_time(&median_s, report, model, setup) == MEMPLAN_OK
        && memplan_setup_set(setup, "fast", "false", NULL) == MEMPLAN_OK
        && bench_time(&full_s, report, model, setup) == MEMPLAN_OK;
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
    if (!done) {
        fputs("bench: the estimate failed\n", stderr);
        return 1;
    }
    printf("llama-7b, zero 3, 64 GPUs: %.2f us an estimate, fast\n",
           median_s * 1e6);
    printf("with the allocator simulated: %.2f us\n", full_s * 1e6);
    if (argc > 1 && !bench_process(argv[1])) {
        fprintf(stderr, "bench: cannot run '%s'\n", argv[1]);
        return 1;
    }
    return 0;
}
