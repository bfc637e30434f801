/*
 * How long one estimate takes inside a process: the median of many, into a
 * report that exists already, which is what a search over layouts pays.
 */
#define _POSIX_C_SOURCE 200809L

#include <memplan/memplan.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BENCH_RUNS = 2001, BENCH_BATCH = 16 };

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

int main(void)
{
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    double median_s = 0;
    bool done =
        memplan_model_builtin(&model, "llama-7b", NULL, NULL) == MEMPLAN_OK
        && memplan_setup_new(&setup, NULL, NULL) == MEMPLAN_OK
        && memplan_setup_set(setup, "zero", "3", NULL) == MEMPLAN_OK
        && memplan_setup_set(setup, "gpus", "64", NULL) == MEMPLAN_OK
        && memplan_estimate(&report, model, setup, NULL, NULL) == MEMPLAN_OK
        && bench_time(&median_s, report, model, setup) == MEMPLAN_OK;
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);
    if (!done) {
        fputs("bench: the estimate failed\n", stderr);
        return 1;
    }
    printf("llama-7b, zero 3, 64 GPUs: %.2f us an estimate\n", median_s * 1e6);
    return 0;
}
