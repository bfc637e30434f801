/* The worked example of memplan.h, to compile and run. */
#include <memplan/memplan.h>

#include <stdio.h>

int main(void)
{
    memplan_error slot[8];
    memplan_errors errs = { slot, 8, 0 };
    memplan_model *model = NULL;
    memplan_setup *setup = NULL;
    memplan_report *report = NULL;
    uint64_t peak = 0;
    if (memplan_model_builtin(&model, "llama-7b", NULL, &errs) == MEMPLAN_OK
        && memplan_setup_new(&setup, NULL, &errs) == MEMPLAN_OK
        && memplan_setup_set(setup, "gpus", "64", &errs) == MEMPLAN_OK
        && memplan_setup_set(setup, "zero", "3", &errs) == MEMPLAN_OK
        && memplan_estimate(&report, model, setup, NULL, &errs) == MEMPLAN_OK
        && memplan_report_bytes(&peak, report, "memory.peak_allocated")
               == MEMPLAN_OK)
        printf("%llu bytes\n", (unsigned long long)peak);
    memplan_report_free(report);
    memplan_setup_free(setup);
    memplan_model_free(model);

    for (size_t i = 0; i < errs.count && i < errs.capacity; i++)
        fprintf(stderr, "%s\n", slot[i].message);
    return peak > 0 ? 0 : 1;
}
