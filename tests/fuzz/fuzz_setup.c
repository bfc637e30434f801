/* A setup's text: parsed, and used on models of three kinds and on none. */
#include "fuzz.h"

enum { ERRORS = 4 };

static void estimate(const memplan_setup *setup, const char *name, bool quiet)
{
    memplan_error slot[ERRORS];
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_model *model = NULL;
    memplan_report *report = NULL;
    fuzz_require(memplan_model_builtin(&model, name, NULL, NULL) == MEMPLAN_OK,
                 "a model of the catalogue is refused");
    memplan_status status =
        memplan_estimate(&report, model, setup, NULL, &errs);
    fuzz_status(status, &errs);
    if (report)
        fuzz_report(report, quiet);
    memplan_report_free(report);
    memplan_model_free(model);
}

static void compute(const memplan_setup *setup, bool quiet)
{
    memplan_error slot[ERRORS];
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_report *report = NULL;
    memplan_status status = memplan_compute(&report, NULL, setup, NULL, &errs);
    fuzz_status(status, &errs);
    if (report)
        fuzz_report(report, quiet);
    memplan_report_free(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const models[] = { "gpt2", "llama-3.2-1b",
                                          "mixtral-8x7b" };
    memplan_error slot[ERRORS];
    memplan_errors errs = { slot, ERRORS, 0 };
    memplan_setup *setup = NULL;
    if (memplan_setup_new(&setup, NULL, NULL) != MEMPLAN_OK)
        return 0;
    memplan_status status =
        memplan_setup_parse(setup, (const char *)data, size, &errs);
    fuzz_status(status, &errs);
    if (status == MEMPLAN_OK) {
        bool quiet = fuzz_is_quiet(data, size);
        for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
            estimate(setup, models[i], quiet);
        compute(setup, quiet);
    }
    memplan_setup_free(setup);
    return 0;
}
